/* The guest's first process: runs /program with the NUL-separated words of /arguments, tells its status on the console, and stops the emulator. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { MOST_WORDS = 64, MOST_BYTES = 4096 };

/* Mounts a file system of the kernel's own; the guest has an empty root. */
static void mount_at(const char *kind, const char *place) {
  mkdir(place, 0755);
  if (mount(kind, place, kind, 0, NULL)) perror(place);
}

int main(void) {
  static char words[MOST_BYTES];
  char *argv[MOST_WORDS + 2] = {"/program"};
  mount_at("proc", "/proc");
  mount_at("sysfs", "/sys");
  mount_at("devtmpfs", "/dev");
  mount_at("tmpfs", "/tmp");
  int file = open("/arguments", O_RDONLY);
  ssize_t length = file < 0 ? 0 : read(file, words, sizeof words - 1);
  if (file >= 0) close(file);
  int count = 1;
  for (char *word = words; word < words + length && count <= MOST_WORDS; word += strlen(word) + 1) argv[count++] = word;
  printf("guest: program starts\n");
  fflush(stdout);
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    execv(argv[0], argv);
    perror("guest: /program");
    _exit(127);
  }
  waitpid(child, &status, 0);
  printf("guest: status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  fflush(stdout);
  tcdrain(1);
  /* Bochs' own switch; ACPI is off. */
  iopl(3);
  for (const char *letter = "Shutdown"; *letter; letter++) outb(*letter, 0x8900);
  for (;;) pause();
}

/* Does the emulator's TDPBF16PS compute what Intel documents, and do tiles live through switches of the process?

   Intel's pseudo-code, a row of A and a column of B, 16 pairs: even and odd start at +0; even = fma(a[2p], b[2p], even), odd = fma(a[2p+1], b[2p+1], odd)
   for p = 0 to 15; c = c + (even + odd). All in f32, round to nearest even, denormal inputs and tiny results are zeros of their sign. Exit status 0: all bits agree. */
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 2048, KINDS = 8, CHILDREN = 3, SWITCHES = 200, REQUEST = 0x1023, TILE_DATA = 18 };

static uint64_t state = 88172645463325252u;

/* xorshift64, its upper half. */
static uint32_t random_bits(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 32;
}

static float value(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

static uint32_t bits(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}

/* A denormal as the zero of its sign. */
static float input(float x) { return bits(x) & 0x7f800000 ? x : value(bits(x) & 0x80000000); }

static float wide(uint16_t x) { return input(value((uint32_t)x << 16)); }

/* fma with a tiny result as the zero of its sign. Tiny is told from the result rounded with an unbounded exponent: that of 2^64 times the operands. */
static float fma_flushed(float a, float b, float c) {
  float plain = fmaf(a, b, c);
  if (!(fabsf(plain) <= 0x1p-126f)) return plain;
  if (fabsf(a) < fabsf(b)) a *= 0x1p64f;
  else b *= 0x1p64f;
  /* |c| is small where the sum is, unless it cancels exactly or to something far above: a product has 16 bits. */
  float scaled = fabsf(c) < 0x1p60f ? fmaf(a, b, c * 0x1p64f) : plain;
  return fabsf(scaled) < 0x1p-62f ? copysignf(0, scaled) : scaled * 0x1p-64f;
}

static float add_flushed(float a, float b) { return fma_flushed(input(a), 1, input(b)); }

/* A bf16 value of one of the kinds: ordinary, anything, of products about 2^-126, denormal, huge, special, small beside ordinary, of many magnitudes. */
static uint16_t draw(int kind) {
  static const uint16_t SPECIAL[16] = {0,      0x8000, 0x0080, 0x8080, 0x007f, 0x807f, 1,      0x8001,
                                       0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7f7f, 0xff7f, 0x3f81, 0x00ff};
  uint32_t r = random_bits(), exponent = 0;
  switch (kind) {
  case 0: return bits(((int)(r % 2001) - 1000) / 256.0f) >> 16;
  case 1: return r;
  case 2: exponent = 62 + r / 256 % 5; break;
  case 3: break;
  case 4: exponent = 189 + r / 256 % 4; break;
  case 5: return SPECIAL[r / 256 % 16];
  case 6: exponent = r & 1 << 20 ? 123 + r / 256 % 9 : 1 + r / 256 % 40; break;
  default: exponent = 97 + r / 256 % 31; break;
  }
  return (r & 0x8000) | exponent << 7 | (r & 0x7f);
}

/* An accumulator: +0, anything, about 2^-126 and denormal, ordinary. */
static float draw_sum(int kind) {
  uint32_t r = random_bits();
  switch (kind) {
  case 0: return 0;
  case 1: return value(r);
  case 2: return value(r & 0x80ffffff);
  default: return value((uint32_t)draw(0) << 16 | (r & 0xffff));
  }
}

static struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
} config __attribute__((aligned(64)));

static uint16_t a[16][32], b[16][32];
static float c[16][16], result[16][16];

#define LOAD "ldtilecfg (%0)\n tileloadd (%1,%4,1), %%tmm0\n tileloadd (%2,%4,1), %%tmm1\n tileloadd (%3,%4,1), %%tmm2\n"
#define STORE "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n tilestored %%tmm0, (%5,%4,1)\n tilerelease"
#define OPERANDS "r"(&config), "r"(c), "r"(a), "r"(b), "r"(64ul), "r"(result)

static void fill(int round) {
  for (int i = 0; i < 16; i++) {
    for (int j = 0; j < 32; j++) {
      a[i][j] = draw(round % KINDS);
      b[i][j] = draw(round / KINDS % KINDS);
    }
    for (int j = 0; j < 16; j++) c[i][j] = draw_sum(round / KINDS / KINDS % 4);
  }
}

/* How many values of `result` differ from the formula; NaN is NaN. Zeros and NaN are counted to show that they occurred. */
static int differences(int round, long *zeros, long *nans) {
  int count = 0;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) {
      float even = 0, odd = 0;
      for (int p = 0; p < 16; p++) {
        even = fma_flushed(wide(a[i][2 * p]), wide(b[p][2 * j]), even);
        odd = fma_flushed(wide(a[i][2 * p + 1]), wide(b[p][2 * j + 1]), odd);
      }
      float wanted = add_flushed(c[i][j], add_flushed(even, odd));
      *zeros += wanted == 0;
      *nans += isnan(wanted);
      if (bits(wanted) == bits(result[i][j]) || (isnan(wanted) && isnan(result[i][j]))) continue;
      if (count++ == 0) printf("round %d, row %d, column %d: tdpbf16ps %08x, formula %08x\n", round, i, j, bits(result[i][j]), bits(wanted));
    }
  return count;
}

/* One of several processes that hold other tiles while they give the core to each other. */
static int switching(int child) {
  long zeros = 0, nans = 0;
  int wrong = 0;
  state += child * 7919;
  for (int round = 0; round < SWITCHES; round++) {
    fill(0);
    asm volatile(LOAD ::OPERANDS : "memory");
    sched_yield();
    asm volatile(STORE ::OPERANDS : "memory");
    wrong += differences(round, &zeros, &nans) != 0;
  }
  return wrong != 0;
}

int main(void) {
  if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA)) {
    perror("the kernel grants no tiles");
    return 2;
  }
  config.palette = 1;
  for (int tile = 0; tile < 8; tile++) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
  long wrong = 0, zeros = 0, nans = 0;
  for (int round = 0; round < ROUNDS; round++) {
    fill(round);
    asm volatile(LOAD STORE ::OPERANDS : "memory");
    wrong += differences(round, &zeros, &nans);
  }
  printf("tdpbf16ps: %ld of %d values differ from the formula; %ld zeros, %ld NaN\n", wrong, ROUNDS * 256, zeros, nans);
  fflush(stdout);
  for (int child = 0; child < CHILDREN; child++)
    if (fork() == 0) _exit(switching(child));
  int failed = 0, status;
  while (wait(&status) > 0) failed += status != 0;
  printf("tiles across switches: %d of %d processes wrong\n", failed, CHILDREN);
  return wrong || failed;
}

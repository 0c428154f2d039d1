/* All-reduce and all-gather of an MPI library, between processes on this machine: microseconds of each, the slowest rank's.
 *
 * The arguments are sizes in bytes. An all-reduce works in place; the size of an all-gather is that of its result. Rank 0 prints a line
 * of JSON, a list of measurements. Build with mpicc -O2, run with mpirun -np N. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int samples_of(long size) { return size <= 64 << 10 ? 300 : size <= 1 << 20 ? 60 : 11; }

static void *allocated(size_t bytes) {
  void *memory = malloc(bytes);
  if (!memory) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return memory;
}

int main(int count, char **arguments) {
  MPI_Init(&count, &arguments);
  int rank, world, printed = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (rank == 0) printf("[");
  for (int i = 1; i < count; i++) {
    long size = atol(arguments[i]), part = (size / 4 + world - 1) / world;
    int samples = samples_of(size);
    float *whole = allocated(4 * part * world), *own = allocated(4 * part);
    double *seconds = allocated(sizeof(double) * samples), *slowest = allocated(sizeof(double) * samples);
    for (long j = 0; j < part; j++) own[j] = 1;
    for (int gathers = 0; gathers < 2; gathers++) {
      long elements = gathers ? part * world : size / 4;
      for (int sample = -3; sample < samples; sample++) {
        for (long j = 0; j < elements; j++) whole[j] = 1;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (gathers)
          MPI_Allgather(own, part, MPI_FLOAT, whole, part, MPI_FLOAT, MPI_COMM_WORLD);
        else
          MPI_Allreduce(MPI_IN_PLACE, whole, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (sample >= 0) seconds[sample] = MPI_Wtime() - start;
        if (whole[elements - 1] != (gathers ? 1 : world)) MPI_Abort(MPI_COMM_WORLD, 2);
      }
      MPI_Allreduce(seconds, slowest, samples, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      qsort(slowest, samples, sizeof(double), ascending);
      if (rank == 0)
        printf("%s{\"collective\": \"%s\", \"devices\": %d, \"bytes\": %ld, \"microseconds\": %.3f}", printed++ ? ", " : "",
               gathers ? "all-gather" : "all-reduce", world, size, 1e6 * slowest[samples / 2]);
    }
    free(whole), free(own), free(seconds), free(slowest);
  }
  if (rank == 0) printf("]\n");
  MPI_Finalize();
  return 0;
}

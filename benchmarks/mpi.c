/* Latency and bandwidth between two ranks, as the OSU benchmarks measure them: half a round trip, the middle of many; and
   windows of messages that one sends and the other answers once. Prints: size in bytes, us, GB/s.

       mpi [SIZE ROUNDS]...
*/
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, WARM = 50 };

static int rank;

static int by_size(const void *one, const void *other)
{
    double left = *(const double *)one, right = *(const double *)other;
    return (left > right) - (left < right);
}

static void turn(char *buffer, int size, int sends)
{
    if (sends) MPI_Send(buffer, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
    else MPI_Recv(buffer, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static double latency_us(char *buffer, int size, int rounds)
{
    double *took = malloc(rounds * sizeof(*took));
    for (int n = -WARM; n < rounds; n++) {
        double began = MPI_Wtime();
        turn(buffer, size, rank == 0);
        turn(buffer, size, rank == 1);
        if (n >= 0) took[n] = (MPI_Wtime() - began) * 1e6 / 2;
    }
    qsort(took, rounds, sizeof(*took), by_size);
    double middle = took[rounds / 2];
    free(took);
    return middle;
}

static double bandwidth_gbyte_s(char *buffer, int size, int rounds)
{
    MPI_Request requests[WINDOW];
    double began = 0;
    for (int n = -2; n < rounds; n++) {
        if (n == 0) began = MPI_Wtime();
        for (int k = 0; k < WINDOW; k++)
            if (rank == 0) MPI_Isend(buffer, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[k]);
            else MPI_Irecv(buffer, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        turn(buffer, 1, rank == 1);
    }
    return (double)size * WINDOW * rounds / (MPI_Wtime() - began) / 1e9;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int n = 1; n + 1 < argc; n += 2) {
        int size = atoi(argv[n]), rounds = atoi(argv[n + 1]);
        char *buffer = malloc(size);
        memset(buffer, rank, size);
        double us = latency_us(buffer, size, rounds), gbyte_s = bandwidth_gbyte_s(buffer, size, rounds / WINDOW + 1);
        if (!rank) printf("%d %.3f %.5f\n", size, us, gbyte_s);
        MPI_Barrier(MPI_COMM_WORLD);
        free(buffer);
    }
    MPI_Finalize();
    return 0;
}

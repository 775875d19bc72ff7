/* What MPI programs do, with every byte looked at: point to point, short and long, in both directions at once;
   collectives; one-sided. Prints one line on rank 0 when all of it was right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST (1 << 20)
#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "rank %d: %s is not so (line %d)\n", rank, #what, __LINE__); \
            MPI_Abort(MPI_COMM_WORLD, 1); \
        } \
    } while (0)

static int rank, size;
static unsigned char mine[LONGEST], theirs[LONGEST];

static unsigned char byte_of(int of, int at) { return of * 37 + at * 11 + (at >> 8); }

/* Everybody sends to the right what the left one sends to him. */
static void ring(int length)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int n = 0; n < length; n++) mine[n] = byte_of(rank, n), theirs[n] = 0;
    MPI_Sendrecv(mine, length, MPI_BYTE, right, 1, theirs, length, MPI_BYTE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int n = 0; n < length; n++) CHECK(theirs[n] == byte_of(left, n));
}

static void collectives(void)
{
    enum { COUNT = 5000 };
    static long sums[COUNT], parts[COUNT];
    long *from = malloc(size * sizeof(*from)), *to = malloc(size * sizeof(*to));
    for (int n = 0; n < COUNT; n++) parts[n] = rank + n;
    MPI_Allreduce(parts, sums, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int n = 0; n < COUNT; n++) CHECK(sums[n] == (long)size * (size - 1) / 2 + (long)n * size);
    for (int n = 0; n < size; n++) from[n] = rank * 1000 + n;
    MPI_Alltoall(from, 1, MPI_LONG, to, 1, MPI_LONG, MPI_COMM_WORLD);
    for (int n = 0; n < size; n++) CHECK(to[n] == n * 1000 + rank);
    free(from);
    free(to);
}

/* Into memory of the one to the right, and a counter of rank 0. */
static void one_sided(void)
{
    long *window, put = 7000 + rank, one = 1, before;
    MPI_Win win;
    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    window[0] = window[1] = 0;
    MPI_Win_fence(0, win);
    MPI_Put(&put, 1, MPI_LONG, (rank + 1) % size, 0, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    CHECK(window[0] == 7000 + (rank + size - 1) % size);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 1, MPI_SUM, win);
    MPI_Win_unlock(0, win);
    CHECK(before >= 0 && before < size);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_fence(0, win);
    CHECK(rank || window[1] == size);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int length = 1; length <= LONGEST; length *= 32) ring(length);
    ring(LONGEST);
    collectives();
    one_sided();
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) printf("all of %d ranks is right\n", size);
    MPI_Finalize();
    return 0;
}

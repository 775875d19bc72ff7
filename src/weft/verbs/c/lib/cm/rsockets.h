/* A socket over RDMA. Both ends send messages into receive requests that the other has posted, no more than it has
   places for: each message says how many of those it got are free again. */
#pragma once
#include "cm.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>

#define PLACE_BYTES 65536 /* from here on both processes copy */
#define PLACES 32         /* for data, of each end */
#define SPARE 4           /* for messages that say that places are free, and for the last one */
#define ALL_PLACES (PLACES + SPARE)
#define BUFFER_BYTES (PLACES * PLACE_BYTES)

enum state { FRESH, BOUND, LISTENING, CONNECTING, CONNECTED, CLOSED };
enum kind { DATA, FREED, LAST, MAPPED, UNMAPPED }; /* of a message; in its immediate data, above the places that are free */

struct mapping { /* memory that the other end writes into, by an offset of its own choice */
    struct mapping *next;
    uint64_t offset, length, address;
    uint32_t rkey;
    struct ibv_mr *mr; /* if it is ours */
};

struct arrival { uint32_t place, length; };

struct rsocket {
    pthread_mutex_t mutex;
    pthread_cond_t moved; /* somebody who waited for the adapter has seen something */
    int is_waited_for;
    int fd, is_nonblocking, error, reuses_address, no_delay, keeps_alive, inline_bytes, idle_s;
    enum state state;
    bool has_sent_last, has_got_last, reads_no_more;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *memory; /* places to receive into, then those to send from */
    uint64_t sent, done; /* messages */
    unsigned credits, owed; /* places of the other end that are free; ours that it does not know of */
    struct arrival arrivals[PLACES]; /* a ring, from first_arrival on: what the program has not read */
    unsigned first_arrival, arrived, begun; /* how many; and bytes of the first that were read */
    struct mapping *own, *others;
};

struct rsocket *find_rsocket(int fd); /* NULL and errno */
int prepare(struct rsocket *);        /* its queues and memory; 0, or -1 and errno */
void progress(struct rsocket *);      /* whatever has come, of messages and of the connection */
int wait_for(struct rsocket *, bool (*is_so)(const struct rsocket *)); /* 0, or -1 and errno */
void say_last(struct rsocket *);
void arm(struct rsocket *);
bool is_readable(const struct rsocket *);
bool is_writable(const struct rsocket *);
int poll_cm(struct rsocket *);

/* A socket over RDMA. Both ends send messages into posted receive requests of the other, at most as many as it has free
   buffers: each message reports the number of buffers that its sender has freed. */
#pragma once
#include "cm.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>

#define PLACE_BYTES 65536 /* both processes copy messages of this size */
#define PLACES 32         /* receive buffers for data at each end */
#define SPARE 4           /* for messages that report free buffers, and for the last one */
#define ALL_PLACES (PLACES + SPARE)
#define BUFFER_BYTES (PLACES * PLACE_BYTES)

enum state { FRESH, BOUND, LISTENING, CONNECTING, CONNECTED, CLOSED };
enum kind { DATA, FREED, LAST, MAPPED, UNMAPPED }; /* of a message; in its immediate data, above the number of freed buffers */

struct mapping { /* memory into which the other end writes at an offset of its choice */
    struct mapping *next;
    uint64_t offset, length, address;
    uint32_t rkey;
    struct ibv_mr *mr; /* of local memory */
};

struct arrival { uint32_t place, length; };

struct rsocket {
    pthread_mutex_t mutex;
    pthread_cond_t moved; /* the thread that waits for the adapter has processed an event */
    int is_waited_for;
    int fd, is_nonblocking, error, reuses_address, no_delay, keeps_alive, inline_bytes, idle_s;
    enum state state;
    bool has_sent_last, has_got_last, reads_no_more;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *memory; /* receive buffers, then send buffers */
    uint64_t sent, done; /* messages */
    unsigned credits, owed; /* free buffers of the other end; own freed buffers that it does not know of */
    struct arrival arrivals[PLACES]; /* a ring of unread messages, from first_arrival on */
    unsigned first_arrival, arrived, begun; /* number of unread messages; read bytes of the first */
    struct mapping *own, *others;
};

struct rsocket *find_rsocket(int fd); /* NULL and errno */
int prepare(struct rsocket *);        /* create queues and memory; 0, or -1 and errno */
void progress(struct rsocket *);      /* process messages and events of the connection */
int wait_for(struct rsocket *, bool (*is_so)(const struct rsocket *)); /* 0, or -1 and errno */
void say_last(struct rsocket *);
void arm(struct rsocket *);
bool is_readable(const struct rsocket *);
bool is_writable(const struct rsocket *);
int poll_cm(struct rsocket *);

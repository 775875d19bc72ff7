/* What the files of librdmacm know of each other. */
#pragma once
#include "weft.h"

#include "cm_abi.h"

#define PRIVATE_DATA_MAX 256

struct channel {
    struct rdma_event_channel channel;
    int events; /* where Python writes a byte for each */
    uint32_t handle;
};

struct group { /* that an identifier is in, or wants to be in */
    struct group *next;
    struct sockaddr_storage address;
    void *context;
    union ibv_gid gid; /* on the wire */
    int is_attached;   /* the queue pair, to it */
};

struct id {
    struct rdma_cm_id id;
    uint32_t handle;
    int is_sync, is_listening; /* is_sync: each call waits, as it has no channel of the program's */
    struct ibv_qp_init_attr *init; /* for queue pairs of those who come, of an endpoint that listens */
    struct group *groups;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t acked; /* events that the program has dealt with; Python knows how many it got */
};

struct event {
    struct rdma_cm_event event; /* first: it is what a program has */
    struct id *counted;         /* who is not destroyed before it is acknowledged */
    uint8_t private_data[PRIVATE_DATA_MAX];
};

/* -- identifiers.c ------------------------------------------------------------------------------------------------ */

struct id *make_id(struct rdma_event_channel *, void *context, int ps, int qp_type);
void free_id(struct id *);
int use_device(struct rdma_cm_id *); /* the device and domain that all share; 0, or -1 and errno */

/* -- addresses.c -------------------------------------------------------------------------------------------------- */

int gid_of(const struct sockaddr *, uint8_t gid[16]); /* 0, or an error number */
uint16_t *port_of(struct sockaddr *);                 /* in network order */
socklen_t length_of(const struct sockaddr *);
void set_address(struct sockaddr_storage *, const struct rdma_cm_id *, int family, const uint8_t gid[16], uint16_t port);

/* -- events.c ----------------------------------------------------------------------------------------------------- */

int complete(struct id *); /* waits for the next event of one without a channel; 0, or -1 and errno */

/* -- connections.c ------------------------------------------------------------------------------------------------ */

int get_ready(struct rdma_cm_id *); /* its queue pair, once both ends have spoken; 0, or an error number */

/* -- groups.c ----------------------------------------------------------------------------------------------------- */

void enter_group(struct rdma_cm_id *, struct rdma_cm_event *, struct group *);
void forget_groups(struct id *);

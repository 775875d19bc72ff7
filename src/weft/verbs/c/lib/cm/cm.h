/* Declarations shared by the files of librdmacm. */
#pragma once
#include "weft.h"

#include "cm_abi.h"

#define PRIVATE_DATA_MAX 256

struct channel {
    struct rdma_event_channel channel;
    int events; /* Python writes one byte per event */
    uint32_t handle;
};

struct group { /* of which an identifier is a member, or which it is joining */
    struct group *next;
    struct sockaddr_storage address;
    void *context;
    union ibv_gid gid; /* in packets */
    int is_attached;   /* the queue pair is attached to it */
};

struct id {
    struct rdma_cm_id id;
    uint32_t handle;
    int is_sync, is_listening; /* is_sync: without a channel of the program each call waits */
    struct ibv_qp_init_attr *init; /* of a listening endpoint: for queue pairs of new connections */
    struct group *groups;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t acked; /* events that the program has acknowledged; Python counts the delivered ones */
};

struct event {
    struct rdma_cm_event event; /* first, because programs hold its address */
    struct id *counted;         /* not destroyed before the event is acknowledged */
    uint8_t private_data[PRIVATE_DATA_MAX];
};

/* -- identifiers.c ------------------------------------------------------------------------------------------------ */

struct id *make_id(struct rdma_event_channel *, void *context, int ps, int qp_type);
void free_id(struct id *);
int use_device(struct rdma_cm_id *); /* set the shared device and domain; 0, or -1 and errno */

/* -- addresses.c -------------------------------------------------------------------------------------------------- */

int gid_of(const struct sockaddr *, uint8_t gid[16]); /* 0, or an error number */
uint16_t *port_of(struct sockaddr *);                 /* in network order */
socklen_t length_of(const struct sockaddr *);
void set_address(struct sockaddr_storage *, const struct rdma_cm_id *, int family, const uint8_t gid[16], uint16_t port);

/* -- events.c ----------------------------------------------------------------------------------------------------- */

int complete(struct id *); /* wait for the next event of an identifier without a channel; 0, or -1 and errno */

/* -- connections.c ------------------------------------------------------------------------------------------------ */

int get_ready(struct rdma_cm_id *); /* make its queue pair ready after the handshake; 0, or an error number */

/* -- groups.c ----------------------------------------------------------------------------------------------------- */

void enter_group(struct rdma_cm_id *, struct rdma_cm_event *, struct group *);
void forget_groups(struct id *);

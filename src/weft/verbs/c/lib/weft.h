/* What the files of the library know of each other. Records, operations and numbers are written by weft.verbs.c.header. */
#pragma once
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "weft_numbers.h"

#define CONTAINER(pointer, type, field) ((type *)((char *)(pointer)-offsetof(type, field)))
#define LIKELY(what) __builtin_expect(!!(what), 1)

/* -- python.c ----------------------------------------------------------------------------------------------------- */

int weft_call(int operation, void *words);                  /* an operation of Python's; 0, or an error number */
#define ASK(name, words) weft_call(WEFT_##name, (words))    /* ... by its name, with its record */
bool weft_can_load(void);                                   /* whether there is a Python for this program; else says why */
extern bool weft_is_guest;                                  /* in a program that is Python */
bool weft_holds_python(void);                               /* whether this thread keeps Python's others from running */
void *weft_let_python_run(void);                            /* while this thread waits, if it has Python's lock; */
void weft_take_python_back(void *);                         /* ... afterwards */
void weft_give_way(void);                                   /* to other threads, and to Python's */
int weft_close(uint32_t handle);                            /* any object; 0, or an error number */
void weft_remember_memory(struct weft_Header *);            /* a device was opened: at the end others notice */
void weft_say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* one line on stderr */
int weft_lacks(const char *verb);                           /* says so; EOPNOTSUPP */
void *weft_lacks_object(const char *verb);                  /* the same of what gives an object: errno and NULL */
extern unsigned weft_generation;                            /* how often this process is a copy of another */

/* -- handover.c --------------------------------------------------------------------------------------------------- */

int weft_hand_over(struct weft_PostSend *, size_t inline_max); /* execute it in a thread of the library; 0, or an error number */
void weft_forget_handed_over(void);                            /* after fork, in the child */

/* -- lab.c ---------------------------------------------------------------------------------------------------------- */

char *weft_lab_devices(const char *path, const char *host); /* the lab's answer; NULL if there is none */

/* -- kernels.c ---------------------------------------------------------------------------------------------------- */

int64_t weft_post(int64_t path);                            /* hca.execute: a request over a path */
extern const struct weft_Linked weft_kernels;               /* all of them, for Python */

/* Numbers of errors for calls that give objects, and for those that give numbers as in libibverbs. */
static inline void *no_object(int error) { errno = error; return NULL; }
static inline int in_errno(int error) { if (error) errno = error; return error ? -1 : 0; }

/* -- a lock of the library's own, for what threads of a program do to one queue ---------------------------------- */

static inline void lock(int *word)
{
    for (unsigned tries = 0; __atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE); tries++)
        if (tries > 100) weft_give_way(); /* who has it may be in Python */
}
static inline void unlock(int *word) { __atomic_store_n(word, 0, __ATOMIC_RELEASE); }

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

/* -- objects: what a program sees, and what the library knows besides --------------------------------------------- */

struct weft_device { struct ibv_device device; void *no_provider[8]; uint64_t guid; };

struct weft_context {
    uint32_t handle;
    int events; /* where Python writes them */
    struct weft_Header *memory;
    struct verbs_context verbs;
};

struct weft_channel { struct ibv_comp_channel channel; int events; };

struct weft_cq {
    struct ibv_cq_ex ex; /* begins as struct ibv_cq */
    int lock;
    unsigned in_vain; /* polls since something was found */
    char *memory;
    struct weft_CompletionQueueRecord *queue;
    struct weft_CompletionRecord *current; /* of the extended way to poll */
    uint32_t comp_events, async_events;    /* that the program got */
};

struct weft_receives { /* a queue of receive requests */
    int lock;
    struct weft_ReceiveQueueRecord *queue;
};

struct weft_srq {
    struct ibv_srq srq;
    struct weft_receives receives;
    uint32_t number, events;
};

struct weft_kept_path { uint32_t ah, qpn; struct weft_PathRecord *path; };

struct weft_qp {
    struct ibv_qp_ex ex;
    int lock;
    int is_queued; /* Python has requests of it that are not done: others wait behind them */
    int is_extended, batch_lock;
    unsigned generation;
    uint32_t events, inline_max;
    struct weft_QueuePairRecord *record;
    struct weft_PathRecord *path;      /* of a connection */
    struct weft_kept_path *datagrams;  /* of one for datagrams, as many as there are places */
    struct weft_receives receives;
    struct weft_batch *batch; /* what was said since wr_start */
};

struct weft_xrcd { struct ibv_xrcd xrcd; uint32_t handle; };

static inline struct weft_context *context_of(struct ibv_context *context)
{
    return CONTAINER(context, struct weft_context, verbs.context);
}
static inline uint32_t handle_of(struct ibv_context *context) { return context_of(context)->handle; }

/* -- of one file, used by another --------------------------------------------------------------------------------- */

struct weft_Address address_words(const struct ibv_ah_attr *);
void address_from_words(const struct weft_Address *, struct ibv_ah_attr *);
int weft_poll_cq(struct ibv_cq *, int count, struct ibv_wc *);
int weft_req_notify_cq(struct ibv_cq *, int solicited_only);
int weft_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
int weft_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
int weft_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
struct ibv_cq_ex *weft_create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);
struct ibv_qp *weft_create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
struct ibv_srq *weft_create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
int weft_get_srq_num(struct ibv_srq *, uint32_t *);
struct ibv_xrcd *weft_open_xrcd(struct ibv_context *, struct ibv_xrcd_init_attr *);
int weft_close_xrcd(struct ibv_xrcd *);
struct ibv_mw *weft_alloc_mw(struct ibv_pd *, int type);
int weft_bind_mw(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
int weft_dealloc_mw(struct ibv_mw *);
int weft_advise_mr(struct ibv_pd *, int advice, uint32_t flags, struct ibv_sge *, uint32_t count);
struct ibv_td *weft_alloc_td(struct ibv_context *, struct ibv_td_init_attr *);
int weft_dealloc_td(struct ibv_td *);
struct ibv_pd *weft_alloc_parent_domain(struct ibv_context *, struct ibv_parent_domain_init_attr *);
struct ibv_dm *weft_alloc_dm(struct ibv_context *, struct ibv_alloc_dm_attr *);
int weft_free_dm(struct ibv_dm *);
struct ibv_mr *weft_reg_dm_mr(struct ibv_pd *, struct ibv_dm *, uint64_t offset, size_t length, unsigned access);
void fill_in_lacking(struct verbs_context *);
void extend_qp(struct weft_qp *); /* the calls of ibv_wr_... */
void end_batch(struct weft_qp *);
int make_pipe(int *reads, int *writes);
ssize_t wait_for_event(int fd, void *event, size_t size);
void drop_from_pipe(int reads, int writes, size_t size, void *object);

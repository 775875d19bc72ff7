/* Completion queues: polls read the ring that the adapter and other processes write. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include "weft.h"

#define YIELD_EVERY 512      /* empty polls: yield the processor */
#define PROGRESS_EVERY 4096  /* ... and let Python work */
#define ADDING_TRIES 1000    /* a longer holder of the memory's lock is not adding a completion */

/* -- polling ------------------------------------------------------------------------------------------------------ */

static struct weft_CompletionRecord *entry(struct weft_cq *cq, uint64_t count)
{
    return (void *)((char *)cq->queue + WEFT_RING + count % cq->queue->capacity * WEFT_COMPLETION_BYTES);
}

/* A short message is stored behind its completion until it is polled. */
static void put_in_place(struct weft_CompletionRecord *done)
{
    if (!done->place) return;
    memcpy((void *)done->place, done + 1, done->byte_len);
    done->place = 0;
}

/* Free the places of a send request and of all before it. */
static void free_places(struct weft_cq *cq, const struct weft_CompletionRecord *done)
{
    if (!done->posted) return;
    struct weft_QueuePairRecord *qp = (void *)(cq->memory + WEFT_QUEUE_PAIRS +
                                               done->qp_num % WEFT_QUEUE_PAIRS_MAX * WEFT_QUEUE_PAIR_BYTES);
    if (qp->number == done->qp_num) qp->polled = done->posted;
}

static bool is_taken(uint64_t left) { return left >> 32 >= (uint32_t)left; }

/* Help another process with a long copy from or to memory of this one: two processors are faster. That process has
   checked the access, and waits until no helper is left. */
static bool help(struct weft_Copy *copy)
{
    __atomic_add_fetch(&copy->helpers, 1, __ATOMIC_SEQ_CST);
    bool may = true;
    for (uint64_t left; !is_taken(left = LOAD(copy->left));) {
        uint64_t first = left >> 32, next = left + (1ull << 32);
        if (!__atomic_compare_exchange_n(&copy->left, &left, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
        uint64_t at = first * copy->part_length, rest = copy->length - at;
        size_t size = rest < copy->part_length ? rest : copy->part_length;
        struct iovec ours = {(void *)(copy->ours + at), size}, theirs = {(void *)(copy->theirs + at), size};
        ssize_t done = copy->is_ours ? process_vm_readv(copy->process, &ours, 1, &theirs, 1, 0)
                                     : process_vm_writev(copy->process, &ours, 1, &theirs, 1, 0);
        if (done == (ssize_t)size) continue;
        may = errno != EPERM;
        STORE(copy->has_failed, 1);
    }
    __atomic_sub_fetch(&copy->helpers, 1, __ATOMIC_ACQ_REL);
    return may;
}

/* In a program that is Python a poll never waits for Python's lock: its holder may wait for a lock that the program holds
   while it polls (NIXL does). The adapter's own thread gets the lock without this one. */
static void find_nothing(struct weft_cq *cq)
{
    static bool may_not_help; /* the system may forbid access to the other process */
    struct weft_Copy *copy = (void *)(cq->memory + WEFT_COPY);
    if (!may_not_help && !copy->is_idle) copy->is_idle = 1;
    if (!is_taken(LOAD(copy->left)) && ((struct weft_Header *)cq->memory)->process == (uint64_t)getpid()) {
        unlock(&cq->lock);
        if (!help(copy)) may_not_help = true, copy->is_idle = 0;
        lock(&cq->lock);
        return;
    }
    bool holds_python = weft_holds_python();
    if (++cq->in_vain % YIELD_EVERY && !holds_python) return;
    struct weft_Progress call = {.context = handle_of(cq->ex.context)};
    unlock(&cq->lock);
    if (holds_python || (cq->in_vain % PROGRESS_EVERY == 0 && !weft_is_guest)) ASK(Progress, &call);
    sched_yield();
    lock(&cq->lock);
}

static void copy(const struct weft_CompletionRecord *done, struct ibv_wc *wc)
{
    wc->wr_id = done->wr_id, wc->status = done->status, wc->opcode = done->opcode, wc->vendor_err = done->vendor_err;
    wc->byte_len = done->byte_len, wc->imm_data = done->immediate, wc->qp_num = done->qp_num;
    wc->src_qp = done->src_qp, wc->wc_flags = done->wc_flags, wc->pkey_index = done->pkey_index;
    wc->slid = done->slid, wc->sl = done->sl, wc->dlid_path_bits = done->dlid_path_bits;
}

static int take(struct weft_cq *cq, int count, struct ibv_wc *wc)
{
    int found = 0;
    uint64_t tail = cq->queue->tail, head = LOAD(cq->queue->head);
    for (; found < count && tail != head; found++, tail++) {
        struct weft_CompletionRecord *done = entry(cq, tail);
        copy(done, &wc[found]);
        put_in_place(done);
        free_places(cq, done);
    }
    if (found) {
        STORE(cq->queue->tail, tail);
        cq->in_vain = 0;
    }
    return found;
}

/* An empty poll yields and polls again: else a program that reads events next would see the end of a connection before
   its last message (libfabric then destroys the queue pair, and waits). */
int weft_poll_cq(struct ibv_cq *given, int count, struct ibv_wc *wc)
{
    struct weft_cq *cq = (struct weft_cq *)given;
    lock(&cq->lock);
    int found = take(cq, count, wc);
    if (!found) {
        find_nothing(cq);
        found = take(cq, count, wc);
    }
    unlock(&cq->lock);
    return found;
}

/* -- extended polling: completions are read in place; the queue is locked from start_poll to end_poll ------------- */

static int next_poll(struct ibv_cq_ex *ex)
{
    struct weft_cq *cq = (struct weft_cq *)ex;
    uint64_t tail = cq->queue->tail;
    if (cq->current) {
        cq->current = NULL;
        STORE(cq->queue->tail, ++tail);
    }
    if (LOAD(cq->queue->head) == tail) return ENOENT;
    cq->current = entry(cq, tail);
    free_places(cq, cq->current);
    put_in_place(cq->current);
    ex->wr_id = cq->current->wr_id, ex->status = cq->current->status;
    cq->in_vain = 0;
    return 0;
}
static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct weft_cq *cq = (struct weft_cq *)ex;
    if (attr && attr->comp_mask) return EINVAL;
    lock(&cq->lock);
    int error = next_poll(ex);
    if (error) {
        find_nothing(cq);
        error = next_poll(ex);
    }
    if (error) unlock(&cq->lock);
    return error;
}
static void end_poll(struct ibv_cq_ex *ex)
{
    struct weft_cq *cq = (struct weft_cq *)ex;
    if (cq->current) STORE(cq->queue->tail, cq->queue->tail + 1);
    cq->current = NULL;
    unlock(&cq->lock);
}
#define READER(type, name, field) \
    static type name(struct ibv_cq_ex *ex) { return ((struct weft_cq *)ex)->current->field; }
READER(int, read_opcode, opcode)
READER(uint32_t, read_vendor_err, vendor_err)
READER(uint32_t, read_byte_len, byte_len)
READER(uint32_t, read_imm_data, immediate)
READER(uint32_t, read_qp_num, qp_num)
READER(uint32_t, read_src_qp, src_qp)
READER(unsigned, read_wc_flags, wc_flags)
READER(uint32_t, read_slid, slid)
READER(uint8_t, read_sl, sl)
READER(uint8_t, read_dlid_path_bits, dlid_path_bits)
READER(uint64_t, read_completion_ts, time_ns)

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
    return read_completion_ts(ex) + now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
}

/* -- creation ----------------------------------------------------------------------------------------------------- */

struct ibv_cq_ex *weft_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    struct weft_channel *channel = (struct weft_channel *)attr->channel;
    struct weft_cq *cq = calloc(1, sizeof(*cq));
    struct weft_CreateCq call = {.context = handle_of(context), .cqe = attr->cqe, .comp_vector = attr->comp_vector,
                                 .wc_flags = attr->wc_flags, .comp_mask = attr->comp_mask, .flags = attr->flags,
                                 .events = channel ? channel->events : -1, .object = (uintptr_t)cq};
    if (!(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)) call.flags = 0;
    int error = cq ? ASK(CreateCq, &call) : ENOMEM;
    if (error) {
        free(cq);
        return no_object(error);
    }
    struct ibv_cq_ex *ex = &cq->ex;
    ex->context = context, ex->channel = attr->channel, ex->cq_context = attr->cq_context;
    ex->handle = call.handle, ex->cqe = call.cqe;
    pthread_mutex_init(&ex->mutex, NULL);
    pthread_cond_init(&ex->cond, NULL);
    ex->start_poll = start_poll, ex->next_poll = next_poll, ex->end_poll = end_poll;
    ex->read_opcode = read_opcode, ex->read_vendor_err = read_vendor_err, ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data, ex->read_qp_num = read_qp_num, ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags, ex->read_slid = read_slid, ex->read_sl = read_sl;
    ex->read_dlid_path_bits = read_dlid_path_bits, ex->read_completion_ts = read_completion_ts;
    ex->read_completion_wallclock_ns = read_wallclock_ns;
    cq->memory = (char *)context_of(context)->memory, cq->queue = (void *)call.queue;
    if (channel) __atomic_add_fetch(&channel->channel.refcnt, 1, __ATOMIC_RELAXED);
    return ex;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                             int comp_vector)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = cqe, .cq_context = cq_context, .channel = channel,
                                       .comp_vector = comp_vector};
    return (struct ibv_cq *)weft_create_cq_ex(context, &attr);
}

int ibv_resize_cq(struct ibv_cq *given, int cqe)
{
    struct weft_cq *cq = (struct weft_cq *)given;
    struct weft_ResizeCq call = {.cq = given->handle, .cqe = cqe};
    lock(&cq->lock);
    int error = ASK(ResizeCq, &call);
    if (!error) cq->queue = (void *)call.queue, given->cqe = call.cqe;
    unlock(&cq->lock);
    return error;
}

int ibv_destroy_cq(struct ibv_cq *given)
{
    struct weft_cq *cq = (struct weft_cq *)given;
    int error = weft_close(given->handle);
    if (error) return error;
    if (given->channel) {
        drop_from_pipe(given->channel->fd, ((struct weft_channel *)given->channel)->events, sizeof(void *), given);
        __atomic_sub_fetch(&given->channel->refcnt, 1, __ATOMIC_RELAXED);
    }
    void *thread = weft_let_python_run();
    pthread_mutex_lock(&given->mutex);
    while (given->comp_events_completed != cq->comp_events || given->async_events_completed != cq->async_events)
        pthread_cond_wait(&given->cond, &given->mutex);
    pthread_mutex_unlock(&given->mutex);
    weft_take_python_back(thread);
    free(cq);
    return 0;
}

/* -- events ------------------------------------------------------------------------------------------------------- */

/* Without Python, for the same reason. A thread that adds a completion holds the memory's lock. When it is free, a
   program sees the event, or the completion if it polls once more as it must. */
int weft_req_notify_cq(struct ibv_cq *given, int solicited_only)
{
    struct weft_cq *cq = (struct weft_cq *)given;
    struct weft_Progress call = {.context = handle_of(given->context)};
    bool only = solicited_only && cq->queue->armed != WEFT_ARMED_FOR_ALL;
    __atomic_store_n(&cq->queue->armed, only ? WEFT_ARMED_FOR_SOLICITED : WEFT_ARMED_FOR_ALL, __ATOMIC_SEQ_CST);
    for (unsigned tries = 0; tries < ADDING_TRIES && LOAD(((struct weft_Header *)cq->memory)->lock); tries++)
        sched_yield();
    if (weft_holds_python()) ASK(Progress, &call);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct weft_channel *made = calloc(1, sizeof(*made));
    int error = made ? make_pipe(&made->channel.fd, &made->events) : ENOMEM;
    if (error) {
        free(made);
        return no_object(error);
    }
    made->channel.context = context;
    return &made->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    if (LOAD(channel->refcnt)) return EBUSY;
    close(channel->fd);
    close(((struct weft_channel *)channel)->events);
    free(channel);
    return 0;
}

/* The adapter writes the event, for which it needs Python. */
ssize_t wait_for_event(int fd, void *event, size_t size)
{
    void *thread = weft_let_python_run();
    ssize_t came = read(fd, event, size);
    weft_take_python_back(thread);
    return came;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    struct weft_cq *told;
    if (wait_for_event(channel->fd, &told, sizeof(told)) != sizeof(told)) return -1; /* the address of the queue */
    *cq = (struct ibv_cq *)told, *cq_context = told->ex.cq_context;
    pthread_mutex_lock(&told->ex.mutex);
    told->comp_events++;
    pthread_mutex_unlock(&told->ex.mutex);
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* Remove the pending events of a destroyed object. All others are written again, in their order. Nothing else is
   written: threads of the program may wait for events there. */
void drop_from_pipe(int reads, int writes, size_t size, void *object)
{
    char event[sizeof(struct weft_AsyncEvent)];
    int flags = fcntl(reads, F_GETFL), waiting = 0;
    if (ioctl(reads, FIONREAD, &waiting) || !waiting) return;
    fcntl(reads, F_SETFL, flags | O_NONBLOCK);
    for (; waiting >= (int)size && read(reads, event, size) == (ssize_t)size; waiting -= size) {
        void *of;
        memcpy(&of, event, sizeof(of));
        if (of != object && write(writes, event, size) < 0) break;
    }
    fcntl(reads, F_SETFL, flags);
}

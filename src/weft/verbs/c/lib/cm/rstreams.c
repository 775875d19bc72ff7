/* Streams of rsockets: messages of up to PLACE_BYTES in order, and mapped memory. */
#include "rsockets.h"

#include <endian.h>
#include <sys/mman.h>
#include <time.h>

int rdma_create_qp(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);
int rdma_get_cm_event(struct rdma_event_channel *, struct rdma_cm_event **);
int rdma_ack_cm_event(struct rdma_cm_event *);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
void ibv_ack_cq_events(struct ibv_cq *, unsigned);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
int ibv_dereg_mr(struct ibv_mr *);

#define SENT (1ull << 32) /* in a work request ID: belongs to the send queue */
#define SPIN_NS 50000     /* time of polling before a waiting thread sleeps */

/* -- buffers ------------------------------------------------------------------------------------------------------- */

static char *place_to_receive(const struct rsocket *rs, unsigned place) { return rs->memory + place * PLACE_BYTES; }
static char *place_to_send(const struct rsocket *rs)
{
    return rs->memory + (ALL_PLACES + rs->sent % ALL_PLACES) * PLACE_BYTES;
}

static int offer_place(struct rsocket *rs, unsigned place)
{
    struct ibv_sge whole = {(uintptr_t)place_to_receive(rs, place), PLACE_BYTES, rs->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &whole, .num_sge = 1}, *bad;
    return weft_post_recv(rs->id->qp, &wr, &bad);
}

int prepare(struct rsocket *rs)
{
    size_t bytes = 2 * ALL_PLACES * PLACE_BYTES;
    struct ibv_context *context = rs->id->verbs;
    rs->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rs->memory == MAP_FAILED) rs->memory = NULL;
    if (!rs->memory || !(rs->mr = ibv_reg_mr(rs->id->pd, rs->memory, bytes, IBV_ACCESS_LOCAL_WRITE))) return -1;
    if (!(rs->channel = ibv_create_comp_channel(context))) return -1;
    fcntl(rs->channel->fd, F_SETFL, O_NONBLOCK);
    if (!(rs->cq = ibv_create_cq(context, 2 * ALL_PLACES, rs, rs->channel, 0))) return -1;
    struct ibv_qp_init_attr init = {.send_cq = rs->cq, .recv_cq = rs->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
                                    .cap = {.max_send_wr = ALL_PLACES, .max_recv_wr = ALL_PLACES, .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    if (rdma_create_qp(rs->id, NULL, &init)) return -1;
    for (unsigned place = 0; place < ALL_PLACES; place++)
        if (offer_place(rs, place)) return in_errno(EIO);
    return 0;
}

/* -- messages ----------------------------------------------------------------------------------------------------- */

static void fail(struct rsocket *rs, int error)
{
    if (rs->state == CLOSED) return;
    rs->state = CLOSED;
    if (!rs->has_got_last) rs->error = error; /* after its last message the peer may disconnect */
}

static bool has_room(const struct rsocket *rs, unsigned spared) { return rs->sent - rs->done + spared < ALL_PLACES; }

static void post(struct rsocket *rs, struct ibv_send_wr *wr, uint32_t length)
{
    struct ibv_sge part = {(uintptr_t)place_to_send(rs), length, rs->mr->lkey};
    struct ibv_send_wr *bad;
    wr->wr_id = SENT | rs->sent % ALL_PLACES, wr->sg_list = &part, wr->num_sge = length != 0;
    rs->sent++;
    if (weft_post_send(rs->id->qp, wr, &bad)) fail(rs, ECONNRESET);
}

static void say(struct rsocket *rs, enum kind kind, uint32_t length)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32((uint32_t)kind << 16 | rs->owed)};
    rs->owed = 0;
    if (kind != FREED && kind != LAST) rs->credits--;
    post(rs, &wr, length);
}

void say_last(struct rsocket *rs)
{
    if (rs->state == CONNECTED && !rs->has_sent_last) say(rs, LAST, 0);
    rs->has_sent_last = true;
}

static void say_what_is_free(struct rsocket *rs)
{
    if (rs->owed >= PLACES / 2 && rs->state == CONNECTED && has_room(rs, 1)) say(rs, FREED, 0);
}

static void map(struct rsocket *rs, const struct mapping *told)
{
    struct mapping *made = malloc(sizeof(*made));
    if (!made) return fail(rs, ENOMEM);
    *made = *told, made->mr = NULL, made->next = rs->others;
    rs->others = made;
}

static void unmap(struct mapping **where, uint64_t offset)
{
    while (*where && (*where)->offset != offset) where = &(*where)->next;
    struct mapping *found = *where;
    if (!found) return;
    *where = found->next;
    if (found->mr) ibv_dereg_mr(found->mr);
    free(found);
}

static void arrive(struct rsocket *rs, const struct ibv_wc *wc)
{
    uint32_t said = be32toh(wc->imm_data), kind = said >> 16;
    const struct mapping *told = (void *)place_to_receive(rs, wc->wr_id);
    if (rs->state == CONNECTING) rs->state = CONNECTED; /* a peer that sends is ready, even before the event */
    rs->credits += said & 0xffff;
    if (kind == DATA) {
        rs->arrivals[(rs->first_arrival + rs->arrived++) % PLACES] = (struct arrival){wc->wr_id, wc->byte_len};
        return;
    }
    if (kind == LAST) rs->has_got_last = true;
    if (kind == MAPPED && wc->byte_len == sizeof(*told)) map(rs, told);
    if (kind == UNMAPPED && wc->byte_len == sizeof(*told)) unmap(&rs->others, told->offset);
    if (kind == MAPPED || kind == UNMAPPED) rs->owed++;
    offer_place(rs, wc->wr_id);
}

static void take_events(struct rsocket *rs)
{
    struct rdma_cm_event *event;
    struct pollfd one = {rs->fd, POLLIN, 0};
    while (poll(&one, 1, 0) == 1 && !rdma_get_cm_event(rs->id->channel, &event)) {
        int kind = event->event, status = abs(event->status);
        rdma_ack_cm_event(event);
        if (kind == RDMA_CM_EVENT_ESTABLISHED) rs->state = CONNECTED;
        else if (kind == RDMA_CM_EVENT_DISCONNECTED) fail(rs, ECONNRESET);
        else if (kind == RDMA_CM_EVENT_REJECTED) fail(rs, ECONNREFUSED);
        else fail(rs, kind == RDMA_CM_EVENT_UNREACHABLE ? ETIMEDOUT : status ? status : ECONNABORTED);
    }
}

/* Messages first: the last ones may have arrived before the connection ended. */
static void take_messages(struct rsocket *rs)
{
    struct ibv_wc came[16];
    for (int count; rs->cq && (count = weft_poll_cq(rs->cq, 16, came)) > 0;)
        for (int n = 0; n < count; n++) {
            if (came[n].wr_id & SENT) rs->done++;
            if (came[n].status) fail(rs, ECONNRESET);
            else if (!(came[n].wr_id & SENT)) arrive(rs, &came[n]);
        }
}

void progress(struct rsocket *rs)
{
    take_messages(rs);
    if (rs->state != CONNECTING && rs->state != CONNECTED) return;
    struct pollfd one = {rs->fd, POLLIN, 0};
    if (poll(&one, 1, 0) == 1) {
        take_messages(rs);
        take_events(rs);
    }
    say_what_is_free(rs);
}

bool is_readable(const struct rsocket *rs)
{
    return rs->arrived || rs->has_got_last || rs->reads_no_more || rs->state == CLOSED;
}
bool is_writable(const struct rsocket *rs)
{
    return rs->state == CLOSED || rs->has_sent_last || (rs->state == CONNECTED && rs->credits && has_room(rs, 2));
}
static bool has_any_room(const struct rsocket *rs) { return rs->state != CONNECTED || has_room(rs, 2); }

/* -- waiting ------------------------------------------------------------------------------------------------------ */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

void arm(struct rsocket *rs)
{
    struct ibv_cq *cq;
    void *context;
    while (!ibv_get_cq_event(rs->channel, &cq, &context)) ibv_ack_cq_events(cq, 1); /* old ones */
    weft_req_notify_cq(rs->cq, 0);
}

int poll_cm(struct rsocket *rs)
{
    struct pollfd one = {rs->fd, POLLIN, 0};
    void *thread = weft_let_python_run();
    int found = poll(&one, 1, -1);
    weft_take_python_back(thread);
    return found < 0 ? -1 : 0;
}

/* One thread waits for the adapter, the others for that thread: an event that it reads wakes all. */
static int sleep_until_something(struct rsocket *rs)
{
    struct pollfd both[] = {{rs->channel->fd, POLLIN, 0}, {rs->fd, POLLIN, 0}};
    void *thread = weft_let_python_run();
    int found = 0;
    if (rs->is_waited_for) pthread_cond_wait(&rs->moved, &rs->mutex);
    else {
        rs->is_waited_for = 1;
        pthread_mutex_unlock(&rs->mutex);
        found = poll(both, 2, -1);
        pthread_mutex_lock(&rs->mutex);
        rs->is_waited_for = 0;
        pthread_cond_broadcast(&rs->moved);
    }
    weft_take_python_back(thread);
    return found < 0 ? -1 : 0;
}

int wait_for(struct rsocket *rs, bool (*is_so)(const struct rsocket *))
{
    uint64_t until = now_ns() + SPIN_NS;
    progress(rs);
    while (!is_so(rs)) {
        if (now_ns() >= until && rs->cq) {
            if (!rs->is_waited_for) arm(rs);
            progress(rs);
            if (is_so(rs)) break;
            if (sleep_until_something(rs)) return -1;
        }
        progress(rs);
    }
    return 0;
}

static bool may_wait(const struct rsocket *rs, int flags) { return !rs->is_nonblocking && !(flags & MSG_DONTWAIT); }

/* -- receiving ---------------------------------------------------------------------------------------------------- */

static size_t take(struct rsocket *rs, char *where, size_t most, bool peeks)
{
    size_t got = 0;
    for (unsigned n = 0; got < most && n < rs->arrived;) {
        struct arrival *one = &rs->arrivals[(rs->first_arrival + n) % PLACES];
        unsigned from = n ? 0 : rs->begun;
        size_t part = one->length - from < most - got ? one->length - from : most - got;
        memcpy(where + got, place_to_receive(rs, one->place) + from, part);
        got += part;
        if (peeks) {
            n++;
            continue;
        }
        rs->begun += part;
        if (rs->begun < one->length) break;
        offer_place(rs, one->place);
        rs->first_arrival = (rs->first_arrival + 1) % PLACES, rs->arrived--, rs->begun = 0, rs->owed++;
    }
    return got;
}

static ssize_t receive(struct rsocket *rs, const struct iovec *parts, int count, int flags)
{
    size_t got = 0;
    for (int n = 0; n < count; n++)
        for (size_t filled = 0; filled < parts[n].iov_len;) {
            bool must_wait = !got || (flags & MSG_WAITALL);
            if (!rs->arrived) progress(rs);
            if (!rs->arrived && !is_readable(rs) && must_wait && rs->state >= CONNECTING) {
                if (!may_wait(rs, flags)) return got ? (ssize_t)got : in_errno(EAGAIN);
                if (wait_for(rs, is_readable)) return got ? (ssize_t)got : -1;
            }
            size_t part = take(rs, (char *)parts[n].iov_base + filled, parts[n].iov_len - filled, flags & MSG_PEEK);
            got += part, filled += part;
            if (part && !(flags & MSG_PEEK)) {
                say_what_is_free(rs);
                continue;
            }
            if (got || rs->has_got_last || rs->reads_no_more) return got;
            int error = rs->state < CONNECTING ? ENOTCONN : rs->error;
            rs->error = 0;
            return in_errno(error);
        }
    return got;
}

/* -- sending ------------------------------------------------------------------------------------------------------ */

static int can_send(struct rsocket *rs, int flags, bool (*has)(const struct rsocket *))
{
    if (rs->state < CONNECTING) return in_errno(ENOTCONN);
    progress(rs);
    if (!has(rs) && !may_wait(rs, flags)) return in_errno(EAGAIN);
    if (!has(rs) && wait_for(rs, has)) return -1;
    if (rs->state == CONNECTED && !rs->has_sent_last) return 0;
    int error = rs->error ? rs->error : EPIPE;
    rs->error = 0;
    return in_errno(error);
}

static ssize_t transmit(struct rsocket *rs, const struct iovec *parts, int count, int flags)
{
    size_t gone = 0;
    for (int n = 0; n < count; n++)
        for (size_t at = 0; at < parts[n].iov_len;) {
            if (can_send(rs, flags, is_writable)) return gone ? (ssize_t)gone : -1;
            size_t left = parts[n].iov_len - at, part = left < PLACE_BYTES ? left : PLACE_BYTES;
            memcpy(place_to_send(rs), (char *)parts[n].iov_base + at, part);
            say(rs, DATA, part);
            gone += part, at += part;
        }
    return gone;
}

/* -- API ------------------------------------------------------------------------------------------ */

typedef ssize_t way(struct rsocket *, const struct iovec *, int, int);

static ssize_t with(int fd, const struct iovec *parts, int count, int flags, way *transfer)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    if (flags & MSG_OOB) return in_errno(EOPNOTSUPP);
    pthread_mutex_lock(&rs->mutex);
    ssize_t moved = transfer(rs, parts, count, flags);
    pthread_mutex_unlock(&rs->mutex);
    return moved;
}

#define ONE(buffer, length) (&(struct iovec){(void *)(buffer), (length)})
ssize_t rrecv(int fd, void *buffer, size_t length, int flags) { return with(fd, ONE(buffer, length), 1, flags, receive); }
ssize_t rsend(int fd, const void *buffer, size_t length, int flags)
{
    return with(fd, ONE(buffer, length), 1, flags, transmit);
}
ssize_t rread(int fd, void *buffer, size_t length) { return rrecv(fd, buffer, length, 0); }
ssize_t rwrite(int fd, const void *buffer, size_t length) { return rsend(fd, buffer, length, 0); }
ssize_t rreadv(int fd, const struct iovec *parts, int count) { return with(fd, parts, count, 0, receive); }
ssize_t rwritev(int fd, const struct iovec *parts, int count) { return with(fd, parts, count, 0, transmit); }

int rgetpeername(int fd, struct sockaddr *, socklen_t *);
ssize_t rrecvfrom(int fd, void *buffer, size_t length, int flags, struct sockaddr *from, socklen_t *from_length)
{
    ssize_t got = rrecv(fd, buffer, length, flags);
    if (got > 0 && from) rgetpeername(fd, from, from_length);
    return got;
}
ssize_t rsendto(int fd, const void *buffer, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
    (void)to_length;
    return to ? in_errno(EISCONN) : rsend(fd, buffer, length, flags);
}
ssize_t rrecvmsg(int fd, struct msghdr *message, int flags)
{
    message->msg_controllen = 0, message->msg_flags = 0;
    return with(fd, message->msg_iov, message->msg_iovlen, flags, receive);
}
ssize_t rsendmsg(int fd, const struct msghdr *message, int flags)
{
    if (message->msg_controllen) return in_errno(EOPNOTSUPP);
    return with(fd, message->msg_iov, message->msg_iovlen, flags, transmit);
}

/* -- memory mapped by the other end ------------------------------------------------------------------------ */

static int tell(struct rsocket *rs, enum kind kind, const struct mapping *mapping)
{
    if (wait_for(rs, is_writable) || can_send(rs, 0, is_writable)) return -1; /* even if non-blocking: the call cannot be retried */
    memcpy(place_to_send(rs), mapping, sizeof(*mapping));
    say(rs, kind, sizeof(*mapping));
    return 0;
}

static off_t map_own(struct rsocket *rs, void *buffer, size_t length, int prot, off_t offset)
{
    if (rs->state != CONNECTED && rs->state != CONNECTING) return in_errno(ENOTCONN);
    int access = IBV_ACCESS_LOCAL_WRITE | (prot & PROT_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
    struct ibv_mr *mr = ibv_reg_mr(rs->id->pd, buffer, length, access);
    struct mapping *made = mr ? malloc(sizeof(*made)) : NULL;
    if (!made) return mr ? in_errno(ENOMEM) : -1;
    *made = (struct mapping){rs->own, offset == -1 ? (uintptr_t)buffer : (uint64_t)offset, length, (uintptr_t)buffer, mr->rkey, mr};
    rs->own = made;
    return tell(rs, MAPPED, made) ? -1 : (off_t)made->offset;
}

off_t riomap(int fd, void *buffer, size_t length, int prot, int flags, off_t offset)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    if (flags || !length) return in_errno(EINVAL);
    pthread_mutex_lock(&rs->mutex);
    off_t at = map_own(rs, buffer, length, prot, offset);
    pthread_mutex_unlock(&rs->mutex);
    return at;
}

int riounmap(int fd, void *buffer, size_t length)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    pthread_mutex_lock(&rs->mutex);
    struct mapping *found = rs->own;
    while (found && (found->address != (uintptr_t)buffer || found->length != length)) found = found->next;
    int error = found ? 0 : EINVAL;
    if (found) {
        if (rs->state == CONNECTED) tell(rs, UNMAPPED, found);
        unmap(&rs->own, found->offset);
    }
    pthread_mutex_unlock(&rs->mutex);
    return in_errno(error);
}

static size_t write_into(struct rsocket *rs, const char *buffer, size_t count, uint64_t offset, int flags)
{
    progress(rs);
    const struct mapping *found = rs->others;
    while (found && (offset < found->offset || count > found->length || offset - found->offset > found->length - count))
        found = found->next;
    if (!found) return in_errno(EINVAL);
    struct mapping there = *found; /* the other end may unmap it while this one waits for a buffer */
    for (size_t at = 0; at < count;) {
        if (can_send(rs, flags, has_any_room)) return at ? at : (size_t)-1;
        size_t part = count - at < PLACE_BYTES ? count - at : PLACE_BYTES;
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
        wr.wr.rdma.remote_addr = there.address + (offset - there.offset) + at, wr.wr.rdma.rkey = there.rkey;
        memcpy(place_to_send(rs), buffer + at, part);
        post(rs, &wr, part);
        at += part;
    }
    return count;
}

size_t riowrite(int fd, const void *buffer, size_t count, off_t offset, int flags)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    pthread_mutex_lock(&rs->mutex);
    size_t written = write_into(rs, buffer, count, offset, flags);
    pthread_mutex_unlock(&rs->mutex);
    return written;
}

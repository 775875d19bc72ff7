/* rsockets, the sockets over RDMA of librdmacm: creation, connections, closing, options. */
#include "rsockets.h"

#include <stdarg.h>
#include <sys/mman.h>

struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *);
int rdma_create_id(struct rdma_event_channel *, struct rdma_cm_id **, void *, int);
int rdma_destroy_id(struct rdma_cm_id *);
int rdma_bind_addr(struct rdma_cm_id *, struct sockaddr *);
int rdma_resolve_addr(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int);
int rdma_resolve_route(struct rdma_cm_id *, int);
int rdma_listen(struct rdma_cm_id *, int);
int rdma_connect(struct rdma_cm_id *, struct rdma_conn_param *);
int rdma_accept(struct rdma_cm_id *, struct rdma_conn_param *);
int rdma_reject(struct rdma_cm_id *, const void *, uint8_t);
int rdma_disconnect(struct rdma_cm_id *);
int rdma_migrate_id(struct rdma_cm_id *, struct rdma_event_channel *);
int rdma_get_cm_event(struct rdma_event_channel *, struct rdma_cm_event **);
int rdma_ack_cm_event(struct rdma_cm_event *);
int rdma_set_option(struct rdma_cm_id *, int, int, void *, size_t);
void rdma_destroy_qp(struct rdma_cm_id *);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
int ibv_dereg_mr(struct ibv_mr *);

#define FILES_MAX 65536
#define TIMEOUT_MS 2000
static struct rsocket *sockets[FILES_MAX]; /* by the program's file descriptor: that of its event channel */

struct rsocket *find_rsocket(int fd)
{
    struct rsocket *found = fd >= 0 && fd < FILES_MAX ? LOAD(sockets[fd]) : NULL;
    return found ? found : no_object(EBADF);
}

/* -- creation and closing ----------------------------------------------------------------------------------------------- */

static struct rsocket *make(struct rdma_event_channel *channel)
{
    struct rsocket *made = channel->fd < FILES_MAX ? calloc(1, sizeof(*made)) : NULL;
    if (!made) return no_object(channel->fd < FILES_MAX ? ENOMEM : EMFILE);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->moved, NULL);
    made->fd = channel->fd, made->credits = PLACES, made->inline_bytes = 64, made->idle_s = 7200;
    fcntl(made->fd, F_SETFL, O_NONBLOCK); /* blocking is implemented here */
    return made;
}

int rsocket(int domain, int type, int protocol)
{
    if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB) return in_errno(EAFNOSUPPORT);
    if ((type & 0xf) != SOCK_STREAM) {
        weft_say("rsocket: weft has those of streams, SOCK_STREAM, and not those of datagrams");
        return in_errno(EPROTONOSUPPORT);
    }
    if (protocol && protocol != IPPROTO_TCP) return in_errno(EPROTONOSUPPORT);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel) return -1;
    struct rsocket *made = make(channel);
    if (!made || rdma_create_id(channel, &made->id, made, RDMA_PS_TCP)) {
        int error = errno;
        free(made);
        rdma_destroy_event_channel(channel);
        return in_errno(error);
    }
    made->is_nonblocking = type & SOCK_NONBLOCK;
    made->id->route.addr.src_addr.sa_family = domain;
    STORE(sockets[made->fd], made);
    return made->fd;
}

static bool is_all_sent(const struct rsocket *rs) { return rs->done == rs->sent || rs->state != CONNECTED; }

static int shut(struct rsocket *rs, int how)
{
    if (rs->state != CONNECTED && rs->state != CLOSED) return in_errno(ENOTCONN);
    if (how != SHUT_WR) rs->reads_no_more = true;
    if (how != SHUT_RD) {
        say_last(rs);
        wait_for(rs, is_all_sent); /* this ends: the adapter's retries are limited */
    }
    return 0;
}

int rshutdown(int fd, int how)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return in_errno(EINVAL);
    pthread_mutex_lock(&rs->mutex);
    int failed = shut(rs, how), error = errno;
    pthread_mutex_unlock(&rs->mutex);
    return failed ? in_errno(error) : 0;
}

static void forget(struct mapping *mapping)
{
    while (mapping) {
        struct mapping *next = mapping->next;
        if (mapping->mr) ibv_dereg_mr(mapping->mr);
        free(mapping);
        mapping = next;
    }
}

static void drop(struct rsocket *rs)
{
    struct rdma_event_channel *channel = rs->id->channel;
    rdma_destroy_qp(rs->id);
    if (rs->mr) ibv_dereg_mr(rs->mr);
    if (rs->memory) munmap(rs->memory, 2 * ALL_PLACES * PLACE_BYTES);
    if (rs->cq) ibv_destroy_cq(rs->cq);
    if (rs->channel) ibv_destroy_comp_channel(rs->channel);
    forget(rs->own), forget(rs->others);
    rdma_destroy_id(rs->id);
    rdma_destroy_event_channel(channel);
    pthread_mutex_destroy(&rs->mutex);
    pthread_cond_destroy(&rs->moved);
    free(rs);
}

int rclose(int fd)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    pthread_mutex_lock(&rs->mutex);
    progress(rs);
    if (rs->state == CONNECTED) {
        shut(rs, SHUT_RDWR);
        rdma_disconnect(rs->id);
    }
    pthread_mutex_unlock(&rs->mutex);
    STORE(sockets[fd], NULL);
    drop(rs);
    return 0;
}

/* -- connections -------------------------------------------------------------------------------------------------- */

int rbind(int fd, const struct sockaddr *address, socklen_t length)
{
    struct rsocket *rs = find_rsocket(fd);
    (void)length;
    if (!rs) return -1;
    if (rs->state != FRESH) return in_errno(EINVAL);
    if (rs->reuses_address) rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &(int){1}, sizeof(int));
    if (rdma_bind_addr(rs->id, (struct sockaddr *)address)) return in_errno(errno == ENODEV ? EADDRNOTAVAIL : errno);
    rs->state = BOUND;
    return 0;
}

int rlisten(int fd, int backlog)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    if (rs->state == LISTENING) return 0;
    if (rs->state > BOUND) return in_errno(EINVAL);
    if (rdma_listen(rs->id, backlog)) return -1;
    rs->state = LISTENING;
    return 0;
}

static const struct rdma_conn_param PARAM = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7,
                                             .rnr_retry_count = 7};

static int expect(struct rsocket *rs, int wanted)
{
    struct rdma_cm_event *event;
    if (poll_cm(rs) || rdma_get_cm_event(rs->id->channel, &event)) return -1;
    int kind = event->event, status = event->status;
    rdma_ack_cm_event(event);
    return kind == wanted ? 0 : in_errno(status ? abs(status) : EHOSTUNREACH);
}

static int begin(struct rsocket *rs, const struct sockaddr *address)
{
    struct sockaddr *source = rs->state == BOUND ? &rs->id->route.addr.src_addr : NULL;
    struct rdma_conn_param param = PARAM;
    if (rdma_resolve_addr(rs->id, source, (struct sockaddr *)address, TIMEOUT_MS)) return -1;
    if (expect(rs, RDMA_CM_EVENT_ADDR_RESOLVED)) return -1;
    if (rdma_resolve_route(rs->id, TIMEOUT_MS) || expect(rs, RDMA_CM_EVENT_ROUTE_RESOLVED)) return -1;
    if (prepare(rs) || rdma_connect(rs->id, &param)) return -1;
    rs->state = CONNECTING;
    return 0;
}

static bool is_decided(const struct rsocket *rs) { return rs->state != CONNECTING; }

int rconnect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct rsocket *rs = find_rsocket(fd);
    (void)length;
    if (!rs) return -1;
    pthread_mutex_lock(&rs->mutex);
    int error = 0;
    if (rs->state <= BOUND) error = begin(rs, address) ? errno : rs->is_nonblocking ? EINPROGRESS : 0;
    else progress(rs), error = rs->state == CONNECTING ? EALREADY : EISCONN;
    if (!error && wait_for(rs, is_decided)) error = errno;
    if (!error && rs->state != CONNECTED) error = rs->error, rs->error = 0;
    pthread_mutex_unlock(&rs->mutex);
    return in_errno(error);
}

int rgetpeername(int fd, struct sockaddr *, socklen_t *);

static int welcome(struct rdma_cm_id *id)
{
    struct rdma_conn_param param = PARAM;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rsocket *made = channel ? make(channel) : NULL;
    if (!made || rdma_migrate_id(id, channel)) {
        int error = errno;
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        if (channel) rdma_destroy_event_channel(channel);
        free(made);
        return in_errno(error);
    }
    made->id = id, made->state = CONNECTING; /* until the other end is ready */
    if (prepare(made) || rdma_accept(id, &param)) {
        int error = errno;
        drop(made);
        return in_errno(error);
    }
    STORE(sockets[made->fd], made);
    return made->fd;
}

int raccept(int fd, struct sockaddr *address, socklen_t *length)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    if (rs->state != LISTENING) return in_errno(EINVAL);
    for (;;) {
        struct rdma_cm_event *event;
        if (rdma_get_cm_event(rs->id->channel, &event)) {
            if (errno != EAGAIN || rs->is_nonblocking || poll_cm(rs)) return -1;
            continue;
        }
        struct rdma_cm_id *asks = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
        rdma_ack_cm_event(event);
        if (!asks) continue;
        int made = welcome(asks);
        if (made >= 0 && address) rgetpeername(made, address, length);
        return made;
    }
}

static int name(const struct sockaddr *known, struct sockaddr *address, socklen_t *length)
{
    socklen_t whole = length_of(known);
    memcpy(address, known, *length < whole ? *length : whole);
    *length = whole;
    return 0;
}

int rgetpeername(int fd, struct sockaddr *address, socklen_t *length)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    return rs->state < CONNECTING ? in_errno(ENOTCONN) : name(&rs->id->route.addr.dst_addr, address, length);
}

int rgetsockname(int fd, struct sockaddr *address, socklen_t *length)
{
    struct rsocket *rs = find_rsocket(fd);
    return rs ? name(&rs->id->route.addr.src_addr, address, length) : -1;
}

/* -- options ------------------------------------------------------------------------------------------------------ */

#define SOL_RDMA 0x10000
enum { RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE };
#define OPTION(level, option) ((uint64_t)(level) << 32 | (unsigned)(option))

/* Return the stored value of an option; only SO_REUSEADDR has an effect. NULL: no such option. */
static int *kept(struct rsocket *rs, int level, int option)
{
    switch (OPTION(level, option)) {
    case OPTION(SOL_SOCKET, SO_REUSEADDR): return &rs->reuses_address;
    case OPTION(SOL_SOCKET, SO_KEEPALIVE): return &rs->keeps_alive; /* peers are checked once a second in any case */
    case OPTION(IPPROTO_TCP, TCP_NODELAY): return &rs->no_delay;    /* data is always sent at once */
    case OPTION(IPPROTO_TCP, TCP_KEEPIDLE): return &rs->idle_s;
    case OPTION(SOL_RDMA, RDMA_INLINE): return &rs->inline_bytes;
    default: return NULL;
    }
}

static int fixed(struct rsocket *rs, int level, int option)
{
    switch (OPTION(level, option)) {
    case OPTION(SOL_SOCKET, SO_SNDBUF): case OPTION(SOL_SOCKET, SO_RCVBUF): return BUFFER_BYTES;
    case OPTION(SOL_SOCKET, SO_TYPE): return SOCK_STREAM;
    case OPTION(SOL_SOCKET, SO_ACCEPTCONN): return rs->state == LISTENING;
    case OPTION(IPPROTO_TCP, TCP_MAXSEG): return PLACE_BYTES;
    case OPTION(SOL_RDMA, RDMA_SQSIZE): case OPTION(SOL_RDMA, RDMA_RQSIZE): return PLACES;
    case OPTION(SOL_RDMA, RDMA_IOMAPSIZE): return INT32_MAX;
    case OPTION(SOL_SOCKET, SO_LINGER): case OPTION(SOL_SOCKET, SO_OOBINLINE): case OPTION(IPPROTO_IPV6, IPV6_V6ONLY): return 0;
    default: return -1;
    }
}

int rsetsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    int *where = kept(rs, level, option);
    if (!where) return fixed(rs, level, option) < 0 ? in_errno(ENOPROTOOPT) : 0; /* sizes are hints, as in Linux */
    if (length < sizeof(int)) return in_errno(EINVAL);
    memcpy(where, value, sizeof(int));
    return 0;
}

int rgetsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
    struct rsocket *rs = find_rsocket(fd);
    if (!rs) return -1;
    int *where = kept(rs, level, option), found = where ? *where : fixed(rs, level, option);
    if (OPTION(level, option) == OPTION(SOL_SOCKET, SO_ERROR)) {
        pthread_mutex_lock(&rs->mutex);
        progress(rs);
        found = rs->error, rs->error = 0;
        pthread_mutex_unlock(&rs->mutex);
    }
    if (found < 0) return in_errno(ENOPROTOOPT);
    if (*length < sizeof(int)) return in_errno(EINVAL);
    memcpy(value, &found, sizeof(int));
    *length = sizeof(int);
    return 0;
}

int rfcntl(int fd, int command, ...)
{
    struct rsocket *rs = find_rsocket(fd);
    va_list arguments;
    va_start(arguments, command);
    int flags = command == F_SETFL ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if (!rs) return -1;
    if (command == F_GETFL) return O_RDWR | (rs->is_nonblocking ? O_NONBLOCK : 0);
    if (command != F_SETFL) return in_errno(EINVAL);
    rs->is_nonblocking = flags & O_NONBLOCK;
    return 0;
}

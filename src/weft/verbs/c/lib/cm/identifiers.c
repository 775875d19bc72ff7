/* Identifiers: ends of connections. All share one open device and one protection domain, as in librdmacm. */
#include "cm.h"

/* -- the device --------------------------------------------------------------------------------------------------- */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *device;
static struct ibv_pd *domain;
static unsigned opened_in; /* number of forks up to this process */

struct ibv_device **ibv_get_device_list(int *);
void ibv_free_device_list(struct ibv_device **);
struct ibv_context *ibv_open_device(struct ibv_device *);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *);

static int open_device(void)
{
    int count = 0;
    pthread_mutex_lock(&opening);
    if (!device || opened_in != weft_generation) {
        struct ibv_device **list = ibv_get_device_list(&count);
        device = count ? ibv_open_device(list[0]) : NULL;
        if (list) ibv_free_device_list(list);
        domain = device ? ibv_alloc_pd(device) : NULL;
        opened_in = weft_generation;
        if (!device) errno = ENODEV;
    }
    pthread_mutex_unlock(&opening);
    return domain ? 0 : -1;
}

int use_device(struct rdma_cm_id *id)
{
    if (open_device()) return -1;
    id->verbs = device, id->port_num = 1;
    if (!id->pd) id->pd = domain;
    return 0;
}

__attribute__((destructor)) static void at_end(void)
{
    struct weft_Leave call = {0};
    if (device && opened_in == weft_generation) ASK(Leave, &call);
}

/* Return the device that the connection manager uses. */
struct ibv_context **rdma_get_devices(int *count)
{
    struct ibv_context **list = open_device() ? NULL : calloc(2, sizeof(*list));
    if (list) list[0] = device;
    if (count) *count = list != NULL;
    return list;
}
void rdma_free_devices(struct ibv_context **list) { free(list); }

/* -- creation and destruction -------------------------------------------------------------------------------------------- */

struct id *make_id(struct rdma_event_channel *channel, void *context, int ps, int qp_type)
{
    struct id *made = calloc(1, sizeof(*made));
    if (!made) return NULL;
    made->id.channel = channel, made->id.context = context, made->id.ps = ps, made->id.qp_type = qp_type;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->cond, NULL);
    return made;
}

void free_id(struct id *id)
{
    pthread_mutex_destroy(&id->mutex);
    pthread_cond_destroy(&id->cond);
    free(id->init);
    free(id);
}

struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *);
int rdma_ack_cm_event(struct rdma_cm_event *);

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, int ps)
{
    int is_datagram = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;
    if (!is_datagram && ps != RDMA_PS_TCP && ps != RDMA_PS_IB) return in_errno(EPROTONOSUPPORT);
    struct rdma_event_channel *own = channel ? NULL : rdma_create_event_channel();
    if (!channel && !own) return -1;
    struct id *made = make_id(channel ? channel : own, context, ps, is_datagram ? IBV_QPT_UD : IBV_QPT_RC);
    struct weft_CreateId call = {.object = (uintptr_t)made, .port_space = ps,
                                 .channel = ((struct channel *)(channel ? channel : own))->handle};
    int error = made ? ASK(CreateId, &call) : ENOMEM;
    if (error) {
        if (made) free_id(made);
        if (own) rdma_destroy_event_channel(own);
        return in_errno(error);
    }
    made->handle = call.handle, made->is_sync = own != NULL;
    *id = &made->id;
    return 0;
}

/* Wait until the program has acknowledged its events. */
static void wait_for_acks(struct id *id, uint64_t taken)
{
    if (id->is_sync && id->id.event) {
        rdma_ack_cm_event(id->id.event);
        id->id.event = NULL;
    }
    pthread_mutex_lock(&id->mutex);
    while (id->acked != (uint32_t)taken) pthread_cond_wait(&id->cond, &id->mutex);
    pthread_mutex_unlock(&id->mutex);
}

int rdma_destroy_id(struct rdma_cm_id *given)
{
    struct id *id = (struct id *)given;
    struct weft_DestroyId call = {.id = id->handle};
    int error = ASK(DestroyId, &call);
    if (error) return in_errno(error);
    wait_for_acks(id, call.taken);
    forget_groups(id);
    if (id->is_sync) rdma_destroy_event_channel(given->channel);
    free_id(id);
    return 0;
}

int rdma_migrate_id(struct rdma_cm_id *given, struct rdma_event_channel *channel)
{
    struct id *id = (struct id *)given;
    struct rdma_event_channel *to = channel ? channel : rdma_create_event_channel();
    if (!to) return -1;
    struct weft_MigrateId call = {.id = id->handle, .channel = ((struct channel *)to)->handle};
    int error = ASK(MigrateId, &call);
    if (error) {
        if (!channel) rdma_destroy_event_channel(to);
        return in_errno(error);
    }
    wait_for_acks(id, call.taken);
    if (id->is_sync) rdma_destroy_event_channel(given->channel);
    given->channel = to, id->is_sync = !channel;
    return 0;
}

/* -- addresses and routes --------------------------------------------------------------------------- */

int rdma_bind_addr(struct rdma_cm_id *given, struct sockaddr *address)
{
    uint8_t gid[16];
    struct weft_BindAddr call = {.id = ((struct id *)given)->handle, .gid = (uintptr_t)gid};
    int error = gid_of(address, gid);
    if (!error) {
        call.port = ntohs(*port_of(address)), call.is_ib = address->sa_family == AF_IB;
        error = ASK(BindAddr, &call);
    }
    if (error) return in_errno(error);
    memcpy(&given->route.addr.src_storage, address, length_of(address));
    *port_of(&given->route.addr.src_addr) = htons(call.port);
    return call.is_any ? 0 : use_device(given); /* an identifier for any device has none before a connection request */
}

int rdma_resolve_addr(struct rdma_cm_id *given, struct sockaddr *source, struct sockaddr *target, int timeout_ms)
{
    uint8_t from[16] = {0}, to[16];
    struct weft_ResolveAddr call = {.id = ((struct id *)given)->handle, .source = (uintptr_t)from,
                                    .target = (uintptr_t)to, .timeout_ms = timeout_ms, .has_source = source != NULL,
                                    .gids = (uintptr_t)&given->route.addr.addr.ibaddr}; /* both, source first */
    int error = gid_of(target, to);
    if (!error && source) error = gid_of(source, from);
    if (error) return in_errno(error);
    call.port = ntohs(*port_of(target)), call.own_port = source ? ntohs(*port_of(source)) : 0;
    call.is_ib = target->sa_family == AF_IB;
    if (use_device(given)) return -1;
    error = ASK(ResolveAddr, &call);
    if (error) return in_errno(error);
    set_address(&given->route.addr.src_storage, given, target->sa_family, from, htons(call.own_port));
    memcpy(&given->route.addr.dst_storage, target, length_of(target));
    given->route.addr.addr.ibaddr.pkey = 0xffff;
    return complete((struct id *)given);
}

int rdma_resolve_route(struct rdma_cm_id *given, int timeout_ms)
{
    struct weft_ResolveRoute call = {.id = ((struct id *)given)->handle, .timeout_ms = timeout_ms};
    int error = ASK(ResolveRoute, &call);
    return error ? in_errno(error) : complete((struct id *)given);
}

/* -- options ------------------------------------------------------------------------------------------------------ */

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length)
{
    struct weft_SetOption call = {.id = ((struct id *)id)->handle, .level = level, .name = name};
    if (length == 1) call.value = *(uint8_t *)value;
    else if (length == sizeof(int)) call.value = *(unsigned *)value;
    else {
        weft_say("rdma_set_option: option %d of level %d has %zu bytes, which none has that weft knows", name, level, length);
        return in_errno(ENOSYS);
    }
    int error = ASK(SetOption, &call);
    if (error == ENOSYS) weft_say("rdma_set_option: weft has no option %d of level %d", name, level);
    return in_errno(error);
}

/* Devices: the list, opening, and queries of a device and its port. */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <net/if.h>

#include "weft.h"

#define DEVICES_MAX 64
enum { NONE = -1 };
static struct weft_device *devices[DEVICES_MAX];
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

static bool is_set(const char *variable) { return getenv(variable) && *getenv(variable); }

/* The GUID of the device of carriers.roce.device: a prefix and the last 3 bytes of the address. */
static bool roce_guid(const char *address, uint64_t *guid)
{
    char text[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    size_t length = strcspn(address, "%"); /* before the scope */
    if (length >= sizeof(text)) return false;
    memcpy(text, address, length);
    text[length] = 0;
    const uint8_t *end = inet_pton(AF_INET, text, bytes) == 1 ? bytes + 4 : bytes + 16;
    if (end == bytes + 16 && inet_pton(AF_INET6, text, bytes) != 1) return false;
    *guid = WEFT_ROCE_GUID | end[-3] << 16 | end[-2] << 8 | end[-1];
    return true;
}

/* Find a device in the answer of a lab. */
static bool find_in(const char *answer, int index, char *name, uint64_t *guid)
{
    const char *at = answer;
    while ((at = strstr(at, "{\"name\": ")) && index--) at++;
    return at && sscanf(at, "{\"name\": \"%63[^\"]\", \"node_guid\": %" SCNu64, name, guid) == 2;
}

static int ask_python(int index, struct weft_device *made)
{
    struct weft_FindDevice call = {.index = index, .name = (uintptr_t)made->device.name};
    int error = ASK(FindDevice, &call);
    made->guid = call.guid;
    return error ? error : call.is_there ? 0 : NONE;
}

/* List devices without Python: many programs only check whether there are any. Python explains what is wrong.
   Return NONE if there is no device of this number, else an error number. */
static int find_device(int index, struct weft_device *made)
{
    static char *answer; /* of the lab: a host keeps its devices */
    uint64_t guid = WEFT_DEVICE_GUID;
    bool is_there = !index;
    if (!weft_can_load()) return ENOSYS;
    strcpy(made->device.name, WEFT_DEVICE_NAME);
    if (is_set(WEFT_ROCE)) {
        if (!roce_guid(getenv(WEFT_ROCE), &guid)) return ask_python(index, made);
    } else if (is_set(WEFT_LAB)) {
        if (!answer) answer = weft_lab_devices(getenv(WEFT_LAB), is_set(WEFT_HOST) ? getenv(WEFT_HOST) : "");
        if (!answer) return ask_python(index, made);
        is_there = find_in(answer, index, made->device.name, &guid);
    }
    made->guid = htobe64(guid);
    return is_there ? 0 : NONE;
}

static struct weft_device *device_at(int index)
{
    struct weft_device made = {.device = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB}};
    int error = find_device(index, &made);
    if (error) return no_object(error == NONE ? 0 : error);
    snprintf(made.device.dev_name, sizeof(made.device.dev_name), "uverbs%d", index);
    snprintf(made.device.dev_path, sizeof(made.device.dev_path), "/sys/class/infiniband_verbs/uverbs%d", index);
    snprintf(made.device.ibdev_path, sizeof(made.device.ibdev_path), "/sys/class/infiniband/%s", made.device.name);
    struct weft_device *kept = malloc(sizeof(made));
    if (kept) *kept = made;
    return kept;
}

struct ibv_device **ibv_get_device_list(int *count)
{
    pthread_mutex_lock(&listing);
    int found = 0;
    errno = 0;
    while (found < DEVICES_MAX && (devices[found] || (devices[found] = device_at(found)))) found++;
    int error = found ? 0 : errno;
    pthread_mutex_unlock(&listing);
    struct ibv_device **list = error ? NULL : calloc(found + 1, sizeof(*list));
    if (count) *count = list ? found : 0;
    if (!list) return no_object(error ? error : ENOMEM);
    for (int n = 0; n < found; n++) list[n] = &devices[n]->device;
    errno = 0;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
uint64_t ibv_get_device_guid(struct ibv_device *device) { return ((struct weft_device *)device)->guid; }

int ibv_get_device_index(struct ibv_device *device)
{
    for (int n = 0; n < DEVICES_MAX; n++)
        if (devices[n] && &devices[n]->device == device) return n;
    return -1;
}

/* -- open devices ------------------------------------------------------------------------------------------------- */

int make_pipe(int *reads, int *writes)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return errno;
    fcntl(ends[1], F_SETFL, O_NONBLOCK); /* the adapter writes, and must not block */
    *reads = ends[0], *writes = ends[1];
    return 0;
}

static int query_port(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);
static int query_device_ex(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *,
                           size_t);
static int query_rt_values(struct ibv_context *, struct ibv_values_ex *);

static void fill_in(struct weft_context *made, struct ibv_device *device, int reads)
{
    struct verbs_context *verbs = &made->verbs;
    struct ibv_context *context = &verbs->context;
    verbs->query_port = query_port, verbs->query_device_ex = query_device_ex, verbs->query_rt_values = query_rt_values;
    verbs->advise_mr = weft_advise_mr;
    verbs->alloc_dm = weft_alloc_dm, verbs->free_dm = weft_free_dm, verbs->reg_dm_mr = weft_reg_dm_mr;
    verbs->alloc_parent_domain = weft_alloc_parent_domain;
    verbs->alloc_td = weft_alloc_td, verbs->dealloc_td = weft_dealloc_td;
    verbs->create_cq_ex = weft_create_cq_ex, verbs->create_qp_ex = weft_create_qp_ex;
    verbs->create_srq_ex = weft_create_srq_ex, verbs->get_srq_num = weft_get_srq_num;
    verbs->open_xrcd = weft_open_xrcd, verbs->close_xrcd = weft_close_xrcd;
    fill_in_lacking(verbs);
    verbs->sz = sizeof(*verbs);
    context->device = device;
    context->ops.alloc_mw = weft_alloc_mw, context->ops.bind_mw = weft_bind_mw, context->ops.dealloc_mw = weft_dealloc_mw;
    context->ops.poll_cq = weft_poll_cq, context->ops.req_notify_cq = weft_req_notify_cq;
    context->ops.post_send = weft_post_send, context->ops.post_recv = weft_post_recv;
    context->ops.post_srq_recv = weft_post_srq_recv;
    context->async_fd = reads, context->num_comp_vectors = 1;
    pthread_mutex_init(&context->mutex, NULL);
    context->abi_compat = VERBS_ABI_IS_EXTENDED;
}

static struct ibv_context *open_with(struct ibv_device *device, int cmd_fd)
{
    int reads, writes, error = make_pipe(&reads, &writes);
    struct weft_context *made = calloc(1, sizeof(*made));
    struct weft_OpenDevice call = {.name = (uintptr_t)device->name, .events = writes, .file = cmd_fd};
    if (!error) error = made ? ASK(OpenDevice, &call) : ENOMEM;
    if (error) {
        free(made);
        return no_object(error);
    }
    fill_in(made, device, reads);
    made->handle = call.handle, made->events = writes, made->memory = (void *)call.memory;
    made->verbs.context.cmd_fd = call.file;
    weft_remember_memory(made->memory);
    return &made->verbs.context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) { return open_with(device, -1); }

struct ibv_context *ibv_import_device(int cmd_fd)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *made = count ? open_with(list[0], cmd_fd) : no_object(ENODEV);
    ibv_free_device_list(list);
    return made;
}

int ibv_close_device(struct ibv_context *context)
{
    struct weft_context *made = context_of(context);
    int error = weft_close(made->handle);
    if (error) return in_errno(error);
    close(context->async_fd);
    close(made->events);
    free(made);
    return 0;
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr, struct weft_QueryDevice *call)
{
    memset(attr, 0, sizeof(*attr));
    memset(call, 0, sizeof(*call));
    call->context = handle_of(context), call->fw_ver = (uintptr_t)attr->fw_ver;
    int error = ASK(QueryDevice, call);
#define TAKE(field) attr->field = call->field;
    WEFT_DEVICE_NUMBERS(TAKE)
    return error;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    struct weft_QueryDevice call;
    return query_device(context, attr, &call);
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    struct ibv_device_attr_ex all = {0};
    struct weft_QueryDevice call;
    if (input && input->comp_mask) return EINVAL;
    if (size < sizeof(all.orig_attr)) return EINVAL;
    int error = query_device(context, &all.orig_attr, &call);
    all.odp_caps.general_caps = call.odp_general;
    all.odp_caps.per_transport_caps.rc_odp_caps = call.odp_rc;
    all.odp_caps.per_transport_caps.uc_odp_caps = call.odp_uc;
    all.odp_caps.per_transport_caps.ud_odp_caps = call.odp_ud;
    all.xrc_odp_caps = call.odp_xrc;
    all.completion_timestamp_mask = call.timestamp_mask, all.hca_core_clock = call.clock_khz;
    all.device_cap_flags_ex = call.device_cap_flags_ex;
    all.phys_port_cnt_ex = call.phys_port_cnt, all.max_dm_size = call.max_dm_size;
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
    return error;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
    (void)context;
    if (values->comp_mask != IBV_VALUES_MASK_RAW_CLOCK) return EINVAL;
    return clock_gettime(CLOCK_MONOTONIC, &values->raw_clock) ? errno : 0;
}

static int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t length)
{
    struct weft_QueryPort call = {.context = handle_of(context), .port_num = port_num};
    struct ibv_port_attr all = {0};
    int error = ASK(QueryPort, &call);
#define TAKE_PORT(field) all.field = call.field;
    WEFT_PORT_NUMBERS(TAKE_PORT)
    memset(attr, 0, length);
    memcpy(attr, &all, length < sizeof(all) ? length : sizeof(all));
    return error;
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr)
{
    return query_port(context, port_num, attr, offsetof(struct ibv_port_attr, flags)); /* older programs have no later fields */
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size)
{
    struct ibv_gid_entry all = {.gid_index = gid_index, .port_num = port_num};
    struct weft_QueryGid call = {.context = handle_of(context), .port_num = port_num, .index = gid_index,
                                 .gid = (uintptr_t)all.gid.raw};
    int error = flags ? EOPNOTSUPP : ASK(QueryGid, &call);
    if (!error && call.is_empty) error = ENODATA;
    if (error) return error;
    all.gid_type = call.type;
    memcpy(entry, &all, size < sizeof(all) ? size : sizeof(all));
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags,
                             size_t size)
{
    struct ibv_port_attr port;
    ssize_t found = 0;
    if (flags) return -EOPNOTSUPP;
    int error = query_port(context, 1, &port, sizeof(port));
    if (error) return -error;
    for (int index = 0; index < port.gid_tbl_len; index++) {
        struct ibv_gid_entry entry;
        if (_ibv_query_gid_ex(context, 1, index, &entry, 0, sizeof(entry))) continue;
        if ((size_t)found == most) return -EINVAL;
        memcpy((char *)entries + found++ * size, &entry, size < sizeof(entry) ? size : sizeof(entry));
    }
    return found;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
    struct weft_QueryGid call = {.context = handle_of(context), .port_num = port_num, .index = index,
                                 .gid = (uintptr_t)gid->raw};
    return in_errno(ASK(QueryGid, &call));
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index, int *type)
{
    struct ibv_gid_entry entry;
    int error = _ibv_query_gid_ex(context, port_num, index, &entry, 0, sizeof(entry));
    *type = !error && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_GID_TYPE_SYSFS_ROCE_V2 : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
    return error == ENODATA ? 0 : in_errno(error);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, uint16_t *pkey)
{
    struct weft_QueryPkey call = {.context = handle_of(context), .port_num = port_num, .index = index};
    int error = ASK(QueryPkey, &call);
    *pkey = __builtin_bswap16(call.pkey); /* in network order */
    return in_errno(error);
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, uint16_t pkey)
{
    uint16_t found;
    for (int index = 0; ibv_query_pkey(context, port_num, index, &found) == 0; index++)
        if (found == pkey) return index;
    return in_errno(EINVAL);
}

/* -- files -------------------------------------------------------------------------------------------------------- */

const char *ibv_get_sysfs_path(void) { return getenv("SYSFS_PATH") ? getenv("SYSFS_PATH") : "/sys"; }

int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size)
{
    char path[2 * IBV_SYSFS_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size);
    if (fd >= 0) close(fd);
    if (length > 0 && text[length - 1] == '\n') text[--length] = 0;
    else if (length >= 0 && (size_t)length < size) text[length] = 0;
    return length;
}

/* fork() needs no preparation: registered memory is found by its address. */
int ibv_fork_init(void) { return 0; }
int ibv_is_fork_initialized(void) { return 2; /* IBV_FORK_UNNEEDED */ }
int ibv_dontfork_range(void *base, size_t size) { (void)base, (void)size; return 0; }
int ibv_dofork_range(void *base, size_t size) { (void)base, (void)size; return 0; }

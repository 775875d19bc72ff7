/* Protection domains, memory regions and windows. */
#include <fcntl.h>
#include <link.h>
#include <sys/ioctl.h>

#include "weft.h"

static struct ibv_pd *pd_of(struct ibv_context *context, uint64_t handle)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));
    if (!pd) return no_object(ENOMEM);
    pd->context = context, pd->handle = handle;
    return pd;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct weft_AllocPd call = {.context = handle_of(context)};
    int error = ASK(AllocPd, &call);
    return error ? no_object(error) : pd_of(context, call.handle);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    int error = weft_close(pd->handle);
    if (!error) free(pd);
    return error;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    struct weft_AllocPd call = {.context = handle_of(context), .parent = handle};
    int error = ASK(AllocPd, &call);
    return error ? no_object(error) : pd_of(context, call.handle);
}
void ibv_unimport_pd(struct ibv_pd *pd) { ibv_dealloc_pd(pd); }

/* Queues are the adapter's: threads and allocators of a domain change nothing, and the domain is the one below. */

struct ibv_pd *weft_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
    unsigned known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (!attr->pd || attr->comp_mask & ~known) return no_object(EINVAL);
    return ibv_import_pd(context, attr->pd->handle);
}
struct ibv_td *weft_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
    struct ibv_td *td = attr->comp_mask ? no_object(EINVAL) : calloc(1, sizeof(*td));
    if (td) td->context = context;
    return td;
}
int weft_dealloc_td(struct ibv_td *td) { free(td); return 0; }

/* -- regions ------------------------------------------------------------------------------------------------------ */

/* What Python would ask the system about memory, at a tenth of the cost. */

struct mapping { uint64_t size, flags, address, begin, end, rest[8]; }; /* procmap_query of linux/fs.h, since Linux 6.11 */
#define PROCMAP_QUERY _IOWR('f', 17, struct mapping)
enum { WRITABLE = 2 };

static int maps_of_process(void)
{
    static int guard, file = -1;
    static unsigned generation;
    lock(&guard);
    if (file < 0 || generation != weft_generation) { /* a copy of a process has other mappings */
        file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        generation = weft_generation;
    }
    unlock(&guard);
    return file;
}

static bool is_writable(uint64_t at, uint64_t length)
{
    for (uint64_t end = at + length; at < end;) {
        struct mapping found = {.size = sizeof(found), .flags = WRITABLE, .address = at};
        if (ioctl(maps_of_process(), PROCMAP_QUERY, &found)) return false;
        at = found.end;
    }
    return true;
}

static int count_libraries(struct dl_phdr_info *info, size_t size, void *none)
{
    (void)size, (void)none;
    return info->dlpi_adds & 0x7FFFFFFF; /* not 0, so that it ends with the first: each says it of all */
}

static struct ibv_mr *register_with(struct ibv_pd *pd, struct weft_RegMr *call)
{
    struct ibv_mr *mr = calloc(1, sizeof(*mr));
    int error = mr ? ASK(RegMr, call) : ENOMEM;
    if (error) {
        free(mr);
        return no_object(error);
    }
    *mr = (struct ibv_mr){pd->context, pd, (void *)call->address, call->length, call->handle, call->key, call->key};
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access)
{
    struct weft_RegMr call = {.pd = pd->handle, .address = (uintptr_t)address, .length = length, .iova = iova,
                              .access = access, .libraries = dl_iterate_phdr(count_libraries, NULL)};
    call.is_writable = access & IBV_ACCESS_LOCAL_WRITE && is_writable(call.address, length);
    return register_with(pd, &call);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, address, length, iova, access);
}
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, access);
}
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    return no_object(EOPNOTSUPP); /* programs ask whether it can be done */
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length, int access)
{
    struct weft_ReregMr call = {.mr = mr->handle, .flags = flags, .pd = flags & IBV_REREG_MR_CHANGE_PD && pd ? pd->handle : 0,
                                .address = (uintptr_t)address, .length = length, .access = access};
    if (ASK(ReregMr, &call)) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) mr->addr = address, mr->length = length;
    if (flags & IBV_REREG_MR_CHANGE_PD) mr->pd = pd;
    return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    int error = weft_close(mr->handle);
    if (!error) free(mr);
    return error;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    struct weft_ImportMr call = {.pd = pd->handle, .mr = handle};
    struct ibv_mr *mr = calloc(1, sizeof(*mr));
    int error = mr ? ASK(ImportMr, &call) : ENOMEM;
    if (error) {
        free(mr);
        return no_object(error);
    }
    *mr = (struct ibv_mr){pd->context, pd, NULL, call.length, call.handle, call.key, call.key};
    return mr;
}
void ibv_unimport_mr(struct ibv_mr *mr) { ibv_dereg_mr(mr); }

int weft_advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *elements, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        struct weft_AdviseMr call = {.pd = pd->handle, .advice = advice, .flags = flags, .address = elements[n].addr,
                                     .length = elements[n].length, .lkey = elements[n].lkey};
        int error = ASK(AdviseMr, &call);
        if (error) return error;
    }
    return 0;
}

/* -- windows ------------------------------------------------------------------------------------------------------ */

struct ibv_mw *weft_alloc_mw(struct ibv_pd *pd, int type)
{
    struct weft_AllocMw call = {.pd = pd->handle, .type = type};
    struct ibv_mw *mw = calloc(1, sizeof(*mw));
    int error = mw ? ASK(AllocMw, &call) : ENOMEM;
    if (error) {
        free(mw);
        return no_object(error);
    }
    *mw = (struct ibv_mw){pd->context, pd, call.key, call.handle, type};
    return mw;
}

int weft_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    struct weft_BindMw call = {.qp = qp->handle, .mw = mw->handle, .wr_id = bind->wr_id, .flags = bind->send_flags,
                               .mr = bind->bind_info.mr ? bind->bind_info.mr->handle : 0, .address = bind->bind_info.addr,
                               .length = bind->bind_info.length, .access = bind->bind_info.mw_access_flags};
    int error = ASK(BindMw, &call);
    if (!error) mw->rkey = call.key; /* ibv_bind_mw() of verbs.h relies on it */
    return error;
}

int weft_dealloc_mw(struct ibv_mw *mw)
{
    int error = weft_close(mw->handle);
    if (!error) free(mw);
    return error;
}

/* -- device memory ------------------------------------------------------------------------------------------------ */

static int copy(struct ibv_dm *dm, uint64_t offset, void *memory, size_t length, int is_read)
{
    struct weft_CopyDm call = {.dm = dm->handle, .begin = offset, .memory = (uintptr_t)memory, .length = length,
                               .is_read = is_read};
    return ASK(CopyDm, &call);
}
static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *memory, size_t length)
{
    return copy(dm, offset, (void *)memory, length, 0);
}
static int copy_from(void *memory, struct ibv_dm *dm, uint64_t offset, size_t length)
{
    return copy(dm, offset, memory, length, 1);
}

static struct ibv_dm *make_dm(struct ibv_context *context, struct weft_AllocDm *call)
{
    struct ibv_dm *dm = calloc(1, sizeof(*dm));
    call->context = handle_of(context);
    int error = dm ? ASK(AllocDm, call) : ENOMEM;
    if (error) {
        free(dm);
        return no_object(error);
    }
    *dm = (struct ibv_dm){context, copy_to, copy_from, 0, call->handle};
    return dm;
}

struct ibv_dm *weft_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
    struct weft_AllocDm call = {.length = attr->length, .log_align_req = attr->log_align_req,
                                .comp_mask = attr->comp_mask};
    return make_dm(context, &call);
}
struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    struct weft_AllocDm call = {.origin = handle};
    return make_dm(context, &call);
}

int weft_free_dm(struct ibv_dm *dm)
{
    int error = weft_close(dm->handle);
    if (!error) free(dm);
    return error;
}
void ibv_unimport_dm(struct ibv_dm *dm) { weft_free_dm(dm); }

struct ibv_mr *weft_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access)
{
    struct weft_RegMr call = {.pd = pd->handle, .dm = dm->handle, .iova = offset, .length = length, .access = access};
    return register_with(pd, &call);
}

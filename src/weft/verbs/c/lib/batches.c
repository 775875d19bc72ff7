/* ibv_wr_...: start, add requests, complete. Nothing is posted before wr_complete. */
#include "weft.h"

struct weft_batch {
    int count, most;      /* requests */
    size_t elements, elements_most, bytes, bytes_most;
    struct ibv_send_wr *requests; /* their sg_list and inline data point into the two below */
    struct ibv_sge *list;
    char *data; /* inline data, copied when it is set */
    int error;
};

static struct weft_batch *batch_of(struct ibv_qp_ex *ex) { return ((struct weft_qp *)ex)->batch; }

static void *grown(void *old, size_t *most, size_t needed, size_t size, int *error)
{
    if (needed <= *most) return old;
    size_t count = needed * 2 + 16;
    void *made = realloc(old, count * size);
    if (!made) *error = ENOMEM;
    else *most = count;
    return made ? made : old;
}

static struct ibv_send_wr *last(struct weft_batch *batch)
{
    static _Thread_local struct ibv_send_wr nowhere;
    if (batch->count) return &batch->requests[batch->count - 1];
    batch->error = batch->error ? batch->error : EINVAL; /* data without a request */
    return &nowhere;
}

static struct ibv_send_wr *add(struct ibv_qp_ex *ex, int opcode)
{
    struct weft_batch *batch = batch_of(ex);
    size_t most = batch->most;
    batch->requests = grown(batch->requests, &most, batch->count + 1, sizeof(*batch->requests), &batch->error);
    batch->most = most;
    if (batch->count < batch->most) batch->count++;
    struct ibv_send_wr *wr = last(batch);
    memset(wr, 0, sizeof(*wr));
    wr->opcode = opcode, wr->wr_id = ex->wr_id, wr->send_flags = ex->wr_flags & ~IBV_SEND_INLINE;
    return wr;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *ex, int opcode, uint32_t rkey, uint64_t address)
{
    struct ibv_send_wr *wr = add(ex, opcode);
    wr->wr.rdma.remote_addr = address, wr->wr.rdma.rkey = rkey;
    return wr;
}

static struct ibv_send_wr *add_atomic(struct ibv_qp_ex *ex, int opcode, uint32_t rkey, uint64_t address)
{
    struct ibv_send_wr *wr = add(ex, opcode);
    wr->wr.atomic.remote_addr = address, wr->wr.atomic.rkey = rkey;
    return wr;
}

/* -- operations --------------------------------------------------------------------------------------------------- */

static void wr_send(struct ibv_qp_ex *ex) { add(ex, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *ex, uint32_t data) { add(ex, IBV_WR_SEND_WITH_IMM)->imm_data = data; }
static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t key) { add(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = key; }
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t key) { add(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = key; }
static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
    add_rdma(ex, IBV_WR_RDMA_READ, rkey, address);
}
static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
    add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, address);
}
static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, uint32_t data)
{
    add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address)->imm_data = data;
}
static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap)
{
    struct ibv_send_wr *wr = add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
    wr->wr.atomic.compare_add = compare, wr->wr.atomic.swap = swap;
}
static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, uint64_t what)
{
    add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address)->wr.atomic.compare_add = what;
}
static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, const void *word)
{
    memcpy(&add_atomic(ex, IBV_WR_ATOMIC_WRITE, rkey, address)->wr.atomic.compare_add, word, sizeof(uint64_t));
}
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, size_t length, uint8_t type, uint8_t level)
{
    struct ibv_send_wr *wr = add_atomic(ex, IBV_WR_FLUSH, rkey, address);
    wr->wr.atomic.compare_add = length, wr->wr.atomic.swap = type | (uint64_t)level << 32;
}
static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
    struct ibv_send_wr *wr = add(ex, IBV_WR_BIND_MW);
    wr->bind_mw.mw = mw, wr->bind_mw.rkey = rkey, wr->bind_mw.bind_info = *info;
}
static void wr_send_tso(struct ibv_qp_ex *ex, void *head, uint16_t size, uint16_t mss)
{
    (void)head, (void)size, (void)mss;
    add(ex, IBV_WR_TSO); /* no type of queue pair supports it */
}

/* -- data and destination ----------------------------------------------------------------------------------------- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
    struct ibv_send_wr *wr = last(batch_of(ex));
    wr->wr.ud.ah = ah, wr->wr.ud.remote_qpn = remote_qpn, wr->wr.ud.remote_qkey = remote_qkey;
}
static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t number)
{
    last(batch_of(ex))->qp_type.xrc.remote_srqn = number;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
    struct weft_batch *batch = batch_of(ex);
    struct ibv_send_wr *wr = last(batch);
    batch->list = grown(batch->list, &batch->elements_most, batch->elements + count, sizeof(*list), &batch->error);
    if (batch->elements + count > batch->elements_most) return;
    memcpy(batch->list + batch->elements, list, count * sizeof(*list));
    wr->sg_list = (void *)batch->elements, wr->num_sge = count;
    batch->elements += count;
}
static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address, uint32_t length)
{
    struct ibv_sge one = {address, length, lkey};
    wr_set_sge_list(ex, 1, &one);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
    struct weft_batch *batch = batch_of(ex);
    size_t begin = batch->bytes, end = begin;
    for (size_t n = 0; n < count; n++) end += list[n].length;
    if (end - begin > ((struct weft_qp *)ex)->inline_max) {
        batch->error = batch->error ? batch->error : EINVAL;
        return;
    }
    batch->data = grown(batch->data, &batch->bytes_most, end, 1, &batch->error);
    if (end > batch->bytes_most) return;
    for (size_t n = 0; n < count; batch->bytes += list[n++].length)
        memcpy(batch->data + batch->bytes, list[n].addr, list[n].length);
    wr_set_sge(ex, 0, begin, end - begin);
    last(batch)->send_flags |= IBV_SEND_INLINE;
}
static void wr_set_inline_data(struct ibv_qp_ex *ex, void *address, size_t length)
{
    struct ibv_data_buf one = {address, length};
    wr_set_inline_data_list(ex, 1, &one);
}

/* -- start and complete ------------------------------------------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *ex)
{
    struct weft_batch *batch = batch_of(ex);
    lock(&((struct weft_qp *)ex)->batch_lock);
    batch->count = batch->error = 0;
    batch->elements = batch->bytes = 0;
}
static void wr_abort(struct ibv_qp_ex *ex) { unlock(&((struct weft_qp *)ex)->batch_lock); }

static int complete(struct weft_qp *qp, struct weft_batch *batch)
{
    struct ibv_send_wr *bad;
    if (batch->error || !batch->count) return batch->error;
    if (qp->record->posted - qp->record->polled + batch->count > qp->record->max_send_wr) return ENOMEM;
    for (int n = 0; n < batch->count; n++) {
        struct ibv_send_wr *wr = &batch->requests[n];
        wr->sg_list = batch->list + (size_t)wr->sg_list;
        if (wr->send_flags & IBV_SEND_INLINE) wr->sg_list->addr += (uintptr_t)batch->data;
        wr->next = n + 1 < batch->count ? wr + 1 : NULL;
    }
    return weft_post_send(&qp->ex.qp_base, batch->requests, &bad);
}
static int wr_complete(struct ibv_qp_ex *ex)
{
    struct weft_qp *qp = (struct weft_qp *)ex;
    int error = complete(qp, qp->batch);
    unlock(&qp->batch_lock);
    return error;
}

void extend_qp(struct weft_qp *qp)
{
    struct ibv_qp_ex *ex = &qp->ex;
    qp->batch = calloc(1, sizeof(*qp->batch));
    ex->wr_start = wr_start, ex->wr_complete = wr_complete, ex->wr_abort = wr_abort;
    ex->wr_send = wr_send, ex->wr_send_imm = wr_send_imm, ex->wr_send_inv = wr_send_inv, ex->wr_send_tso = wr_send_tso;
    ex->wr_rdma_read = wr_rdma_read, ex->wr_rdma_write = wr_rdma_write, ex->wr_rdma_write_imm = wr_rdma_write_imm;
    ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp, ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
    ex->wr_atomic_write = wr_atomic_write, ex->wr_flush = wr_flush;
    ex->wr_bind_mw = wr_bind_mw, ex->wr_local_inv = wr_local_inv;
    ex->wr_set_ud_addr = wr_set_ud_addr, ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
    ex->wr_set_sge = wr_set_sge, ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_set_inline_data = wr_set_inline_data, ex->wr_set_inline_data_list = wr_set_inline_data_list;
}

void end_batch(struct weft_qp *qp)
{
    if (!qp->batch) return;
    free(qp->batch->requests);
    free(qp->batch->list);
    free(qp->batch->data);
    free(qp->batch);
}

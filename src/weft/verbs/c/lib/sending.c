/* Send requests. On a shared-memory path the compiled kernel of weft.verbs.hca.execute executes them at once. All others
   go to Python, which sends packets. */
#include "weft.h"

#define TURNS 100     /* yields to other processes before the first sleep */
#define RESTS 100
#define REST_NS 50000
#define REQUEST_BYTES (sizeof(struct weft_SendRequest) + WEFT_SGE_MAX * sizeof(struct weft_SgeRecord))

static void fill(struct weft_SendRequest *request, const struct ibv_send_wr *wr, int qp_type)
{
    struct weft_SgeRecord *elements = (void *)(request + 1);
    int atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
                 wr->opcode == IBV_WR_ATOMIC_WRITE || wr->opcode == IBV_WR_FLUSH; /* as batches.c stores those two */
    request->opcode = wr->opcode, request->flags = wr->send_flags, request->wr_id = wr->wr_id;
    request->immediate = wr->imm_data, request->va = wr->wr.rdma.remote_addr;
    request->rkey = atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
    request->compare = atomic ? wr->wr.atomic.compare_add : 0, request->swap = atomic ? wr->wr.atomic.swap : 0;
    request->num_sge = wr->num_sge, request->number = 0;
    if (qp_type == IBV_QPT_UD) request->rkey = wr->wr.ud.remote_qkey;
    for (int n = 0; n < wr->num_sge; n++) {
        elements[n].address = wr->sg_list[n].addr;
        elements[n].length = wr->sg_list[n].length;
        elements[n].lkey = wr->sg_list[n].lkey;
    }
}

/* Return the cache entry for the path of a datagram: by its address handle, whose number is never reused, and the remote
   queue pair. */
static struct weft_kept_path *place_of(struct weft_qp *qp, const struct ibv_send_wr *wr)
{
    uint32_t ah = wr->wr.ud.ah ? wr->wr.ud.ah->handle : 0;
    return &qp->datagrams[(ah * 2654435761u + wr->wr.ud.remote_qpn * 40503u) / 64 % WEFT_DATAGRAM_PATHS];
}
static struct weft_PathRecord *path_of(struct weft_qp *qp, const struct ibv_send_wr *wr)
{
    if (LIKELY(!qp->datagrams)) return qp->path;
    struct weft_kept_path *place = place_of(qp, wr);
    return place->path && place->ah == wr->wr.ud.ah->handle && place->qpn == wr->wr.ud.remote_qpn ? place->path : NULL;
}
static uint32_t number_of(struct weft_qp *qp, const struct ibv_send_wr *wr)
{
    return qp->datagrams ? place_of(qp, wr) - qp->datagrams : 0;
}
static void keep(struct weft_qp *qp, const struct ibv_send_wr *wr, uint64_t path)
{
    if (!qp->datagrams)
        qp->path = (void *)path;
    else
        *place_of(qp, wr) = (struct weft_kept_path){wr->wr.ud.ah ? wr->wr.ud.ah->handle : 0, wr->wr.ud.remote_qpn,
                                                    (void *)path};
}

/* Finish a request that the kernel left to Python; return 0 if it is done. */
static int finish(struct weft_qp *qp, const struct ibv_send_wr *wr, int64_t code)
{
    struct weft_FinishSend call = {.qp = qp->ex.qp_base.handle, .code = code, .place = number_of(qp, wr)};
    int error = ASK(FinishSend, &call);
    keep(qp, wr, call.path);
    return error || !call.is_done;
}

static int post_to_python(struct weft_qp *qp, const struct ibv_send_wr *wr)
{
    struct ibv_qp *base = &qp->ex.qp_base;
    char words[REQUEST_BYTES];
    struct weft_PostSend call = {.qp = base->handle, .request = (uintptr_t)words, .place = number_of(qp, wr)};
    if (wr->num_sge < 0 || wr->num_sge > WEFT_SGE_MAX) return EINVAL;
    fill((struct weft_SendRequest *)words, wr, base->qp_type);
    if (base->qp_type == IBV_QPT_UD) {
        call.ah = wr->wr.ud.ah ? wr->wr.ud.ah->handle : 0;
        call.remote_qpn = wr->wr.ud.remote_qpn, call.remote_qkey = wr->wr.ud.remote_qkey;
    }
    if (base->qp_type == IBV_QPT_XRC_SEND) call.remote_srqn = wr->qp_type.xrc.remote_srqn;
    if (wr->opcode == IBV_WR_BIND_MW) {
        const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
        call.mw = wr->bind_mw.mw->handle, call.key = wr->bind_mw.rkey, call.mr = info->mr ? info->mr->handle : 0;
        call.address = info->addr, call.length = info->length, call.access = info->mw_access_flags;
    }
    bool is_handed_over = weft_is_guest && !weft_holds_python();
    int error = is_handed_over ? weft_hand_over(&call, qp->inline_max) : ASK(PostSend, &call);
    if (!error && wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
    keep(qp, wr, call.path);
    qp->is_queued = call.is_queued;
    return error;
}

/* Return whether the peer has no receive request or no free completion, and may have one soon. Packets of UC may still be in
   flight, and acknowledgements of earlier packets must come first. */
static bool is_not_ready(const struct weft_PathRecord *path, int opcode)
{
    const struct weft_QueuePairRecord *far = (void *)path->far_qp, *own = (void *)path->own_qp;
    const struct weft_ReceiveQueueRecord *receives = (void *)(path->far + far->receive_queue);
    const struct weft_CompletionQueueRecord *told = (void *)(path->far + far->receive_cq);
    if (own->service == WEFT_UC && LOAD(far->expected_psn) != own->next_psn) return true;
    if (LOAD(far->unacked)) return true;
    if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM && opcode != IBV_WR_RDMA_WRITE_WITH_IMM) return false;
    return (far->state == IBV_QPS_RTR || far->state == IBV_QPS_RTS) &&
           (LOAD(receives->head) == LOAD(receives->tail) || LOAD(told->head) - LOAD(told->tail) >= told->capacity);
}

/* Wait for a receive request: an RNR NAK would make the sender wait longer than most receivers take. A datagram without a
   receiver is dropped after a short wait, so that a peer that never receives does not hold up its sender. A receiver in this
   process may be the same thread, so there is no wait for it. */
static int64_t wait_for_receiver(struct weft_PathRecord *path, int opcode, int64_t code)
{
    struct timespec rest = {0, REST_NS};
    int most = path->staged ? TURNS : TURNS + RESTS;
    if (path->far_process == path->own_process) return code;
    for (int tries = 0; code == WEFT_SLOW && tries < most && is_not_ready(path, opcode); tries++) {
        if (tries < TURNS) sched_yield();
        else nanosleep(&rest, NULL);
        code = weft_post((intptr_t)path);
    }
    return code;
}

static int post(struct weft_qp *qp, const struct ibv_send_wr *wr)
{
    if (qp->record->state == IBV_QPS_RTS && qp->record->posted - qp->record->polled >= qp->record->max_send_wr)
        return ENOMEM; /* programs retry */
    struct weft_PathRecord *path = path_of(qp, wr);
    if (LIKELY(path && !qp->is_queued && (unsigned)wr->num_sge <= WEFT_SGE_MAX)) {
        fill((struct weft_SendRequest *)path->request, wr, qp->ex.qp_base.qp_type);
        int64_t code = weft_post((intptr_t)path);
        if (code == WEFT_SLOW) code = wait_for_receiver(path, wr->opcode, code);
        if (LIKELY(!code) || !finish(qp, wr, code)) return 0;
    }
    return post_to_python(qp, wr);
}

int weft_post_send(struct ibv_qp *given, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct weft_qp *qp = (struct weft_qp *)given;
    int error = 0;
    lock(&qp->lock);
    for (; wr; wr = wr->next) {
        error = qp->generation == weft_generation ? post(qp, wr) : EINVAL;
        if (error) {
            *bad = wr;
            break;
        }
    }
    unlock(&qp->lock);
    return error;
}

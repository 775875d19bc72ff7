/* Send one datagram to oneself from a thread that the caller waits for. Built as a shared library for a Python program. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static char received[40 + 64];
static char inline_data[64];

int set_up(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_port_attr port;
    if (!devices || !(context = ibv_open_device(devices[0])) || ibv_query_port(context, 1, &port)) return 1;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    mr = ibv_reg_mr(pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
                                    .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
                                            .max_inline_data = sizeof(inline_data)}};
    qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11};
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) return 2;
    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE)) return 3;
    attr.qp_state = IBV_QPS_RTS;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)) return 4;
    struct ibv_ah_attr address = {.dlid = port.lid, .port_num = 1, .is_global = 1, .grh = {.hop_limit = 1}};
    if (ibv_query_gid(context, 1, 0, &address.grh.dgid) || !(ah = ibv_create_ah(pd, &address))) return 5;
    struct ibv_sge place = {(uintptr_t)received, sizeof(received), mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &place, .num_sge = 1}, *bad;
    return ibv_post_recv(qp, &receive, &bad);
}

static void *send_one(void *result)
{
    struct ibv_sge place = {(uintptr_t)inline_data, sizeof(inline_data), 0};
    struct ibv_send_wr send = {.sg_list = &place, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE,
                               .wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 0x11}}, *bad;
    strcpy(inline_data, "sent inline");
    *(int *)result = ibv_post_send(qp, &send, &bad);
    memset(inline_data, 0, sizeof(inline_data));
    return NULL;
}

int send_and_join(void)
{
    pthread_t thread;
    int result = -1;
    pthread_create(&thread, NULL, send_one, &result);
    pthread_join(thread, NULL);
    return result;
}

int wait_for_both(void)
{
    struct ibv_wc wc;
    for (int completed = 0; completed < 2;)
        if (ibv_poll_cq(cq, 1, &wc) == 1) {
            if (wc.status) return wc.status;
            completed++;
        }
    return strcmp(received + 40, "sent inline");
}

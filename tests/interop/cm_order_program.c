/* A client that sends and a server that answers each message, over connections of rdma_cm, with a completion channel and a thread
   that waits for it, as tutorials teach it. The client prints how often an answer completed before its own SEND. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 32, ROUNDS = 20 };
static struct rdma_cm_id *id;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[2 * SIZE];
static int is_server;

static void must(int right, const char *what)
{
    if (right) return;
    perror(what);
    exit(1);
}

static void post_receive(void)
{
    struct ibv_sge element = {(uintptr_t)memory + SIZE, SIZE, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &element, .num_sge = 1}, *bad;
    must(!ibv_post_recv(id->qp, &wr, &bad), "ibv_post_recv");
}

static void post_send(void)
{
    struct ibv_sge element = {(uintptr_t)memory, SIZE, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    must(!ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
}

static void *wait_for_completions(void *none)
{
    int sent = 0, received = 0, early = 0;
    while (sent < ROUNDS || received < ROUNDS) {
        struct ibv_cq *told;
        struct ibv_wc wc;
        void *own;
        must(!ibv_get_cq_event(channel, &told, &own), "ibv_get_cq_event");
        ibv_ack_cq_events(told, 1);
        must(!ibv_req_notify_cq(told, 0), "ibv_req_notify_cq");
        while (ibv_poll_cq(told, 1, &wc)) {
            must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
            if (wc.opcode == IBV_WC_SEND) sent++;
            else {
                received++, early += !is_server && received > sent;
                if (received < ROUNDS) post_receive();
                if (is_server || received < ROUNDS) post_send();
            }
        }
    }
    printf("%d early\n", early);
    return none;
}

static void build(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
    must(pd && (channel = ibv_create_comp_channel(id->verbs)), "ibv_create_comp_channel");
    must((cq = ibv_create_cq(id->verbs, 10, NULL, channel, 0)) && !ibv_req_notify_cq(cq, 0), "ibv_create_cq");
    must((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)) != NULL, "ibv_reg_mr");
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {10, 10, 1, 1, 0}};
    must(!rdma_create_qp(id, pd, &attr), "rdma_create_qp");
    post_receive();
}

static void await(struct rdma_event_channel *events, int wanted)
{
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(events, &event), "rdma_get_cm_event");
    must((int)event->event == wanted, rdma_event_str(event->event));
    if (wanted == RDMA_CM_EVENT_CONNECT_REQUEST) id = event->id;
    rdma_ack_cm_event(event);
}

int main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[count - 1]))};
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_conn_param param = {.rnr_retry_count = 7, .retry_count = 7};
    struct rdma_cm_id *listener;
    pthread_t poller;
    setbuf(stdout, NULL);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_server = !strcmp(words[1], "server");
    must(events && !rdma_create_id(events, is_server ? &listener : &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    if (is_server) {
        must(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 1), "rdma_listen");
        printf("listening\n");
        await(events, RDMA_CM_EVENT_CONNECT_REQUEST);
        build();
        pthread_create(&poller, NULL, wait_for_completions, NULL);
        must(!rdma_accept(id, &param), "rdma_accept");
    } else {
        must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), "rdma_resolve_addr");
        await(events, RDMA_CM_EVENT_ADDR_RESOLVED);
        build();
        pthread_create(&poller, NULL, wait_for_completions, NULL);
        must(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
        await(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
        must(!rdma_connect(id, &param), "rdma_connect");
    }
    await(events, RDMA_CM_EVENT_ESTABLISHED);
    if (!is_server) post_send();
    pthread_join(poller, NULL);
    return 0;
}

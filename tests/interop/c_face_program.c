/* A program of libibverbs that connects two queue pairs of its own and does what the first argument says.
   It prints what came of it, one word in a line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4096, LARGE = 8 << 20, THREADS = 8 };
static const int mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
static int gid_index; /* of RoCE v2 over IPv4; of the port itself in a lab */
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qps[2];
static char memory[2 * SIZE];

static void must(int right, const char *what)
{
    if (right) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void connect_to(struct ibv_qp *qp, uint32_t number)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_RTR, attr.path_mtu = IBV_MTU_1024, attr.dest_qp_num = number, attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12, attr.ah_attr.is_global = 1, attr.ah_attr.port_num = 1, attr.ah_attr.grh.sgid_index = gid_index;
    must(!ibv_query_gid(context, 1, gid_index, &attr.ah_attr.grh.dgid), "ibv_query_gid");
    must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    attr.qp_state = IBV_QPS_RTS, attr.timeout = 14, attr.retry_cnt = attr.rnr_retry = 7, attr.max_rd_atomic = 1;
    must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void open_all(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    must(list && list[0], "ibv_get_device_list");
    must((context = ibv_open_device(list[0])) != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    struct ibv_port_attr port;
    must(!ibv_query_port(context, 1, &port), "ibv_query_port");
    gid_index = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 3 : 0;
    must((pd = ibv_alloc_pd(context)) != NULL, "ibv_alloc_pd");
    must((channel = ibv_create_comp_channel(context)) != NULL, "ibv_create_comp_channel");
    must((cq = ibv_create_cq(context, 64, &memory, channel, 0)) != NULL, "ibv_create_cq");
    must((mr = ibv_reg_mr(pd, memory, sizeof(memory), mr_access)) != NULL, "ibv_reg_mr");
    for (int n = 0; n < 2; n++) {
        struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
        attr.cap = (struct ibv_qp_cap){.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2};
        must((qps[n] = ibv_create_qp(pd, &attr)) != NULL, "ibv_create_qp");
    }
}

static void connect_both(void)
{
    connect_to(qps[0], qps[1]->qp_num);
    connect_to(qps[1], qps[0]->qp_num);
}

static int post(int opcode, uint32_t lkey, uint32_t rkey)
{
    struct ibv_sge element = {(uintptr_t)memory, 64, lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &element, .num_sge = 1, .opcode = opcode}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + SIZE, wr.wr.rdma.rkey = rkey;
    return ibv_post_send(qps[0], &wr, &bad);
}

static void post_receive(void)
{
    struct ibv_sge element = {(uintptr_t)memory + SIZE, SIZE, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &element, .num_sge = 1}, *bad;
    must(!ibv_post_recv(qps[1], &wr, &bad), "ibv_post_recv");
}

static struct ibv_wc next(void)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) ;
    return wc;
}

static void say_status(void) { printf("%s\n", ibv_wc_status_str(next().status)); }

static void wait_for(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    must(poll(&one, 1, 60000) == 1, "poll");
}

static void events(void)
{
    struct ibv_cq *told;
    struct ibv_async_event event;
    void *own;
    must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    post_receive();
    post(IBV_WR_SEND, mr->lkey, 0);
    wait_for(channel->fd);
    must(!ibv_get_cq_event(channel, &told, &own), "ibv_get_cq_event");
    printf("%s\n", told == cq && own == memory ? "completion" : "another");
    ibv_ack_cq_events(cq, 1);
    next(), next();
    post(IBV_WR_RDMA_WRITE, mr->lkey, 0xBAD);
    wait_for(context->async_fd);
    must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
    printf("%s %s\n", ibv_event_type_str(event.event_type), event.element.qp == qps[1] ? "there" : "elsewhere");
    ibv_ack_async_event(&event);
}

static void *write_some(void *count)
{
    for (int n = 0; n < 1000; n++)
        while (post(IBV_WR_RDMA_WRITE, mr->lkey, mr->rkey) == ENOMEM) ;
    return count;
}

static void threads(void)
{
    pthread_t others[3];
    int done = 0, failed = 0;
    for (int n = 0; n < 3; n++) pthread_create(&others[n], NULL, write_some, NULL);
    while (done < 3000) failed += next().status != IBV_WC_SUCCESS, done++;
    for (int n = 0; n < 3; n++) pthread_join(others[n], NULL);
    printf("%d done, %d failed\n", done, failed);
}

static pthread_barrier_t all_threads;

static void *connect_one(void *qp)
{
    pthread_barrier_wait(&all_threads);
    connect_to(qp, ((struct ibv_qp *)qp)->qp_num);
    return NULL;
}

static void connecting_threads(void)
{
    pthread_t others[THREADS];
    struct ibv_qp *made[THREADS];
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 2, 2, 0}};
    pthread_barrier_init(&all_threads, NULL, THREADS);
    for (int n = 0; n < THREADS; n++) must((made[n] = ibv_create_qp(pd, &attr)) != NULL, "ibv_create_qp");
    for (int n = 0; n < THREADS; n++) pthread_create(&others[n], NULL, connect_one, made[n]);
    for (int n = 0; n < THREADS; n++) pthread_join(others[n], NULL);
    for (int n = 0; n < THREADS; n++) must(!ibv_destroy_qp(made[n]), "ibv_destroy_qp");
    connect_both();
    printf("%d connected\n", THREADS);
}

static void forked(void)
{
    pid_t child = fork();
    if (!child) {
        open_all(), connect_both(); /* a device of its own */
        post(IBV_WR_RDMA_WRITE, mr->lkey, mr->rkey);
        _exit(next().status);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    post(IBV_WR_RDMA_WRITE, mr->lkey, mr->rkey);
    say_status();
}

/* -- without Python's lock: another thread has it ------------------------------------------------------------------- */

enum { GRH = 40, Q_KEY = 0x1234 };
static sem_t held, enough;

static void *hold_python(void *none)
{
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    int state = ensure();
    sem_post(&held);
    sem_wait(&enough);
    release(state);
    return none;
}

static struct ibv_qp *unreliable(int type)
{
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
    must(qp != NULL, "ibv_create_qp");
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                     (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), "INIT");
    to.qp_state = IBV_QPS_RTR, to.path_mtu = IBV_MTU_1024, to.dest_qp_num = qp->qp_num; /* of UC: its own other end */
    to.ah_attr.is_global = 1, to.ah_attr.port_num = 1, to.ah_attr.grh.sgid_index = gid_index;
    must(!ibv_query_gid(context, 1, gid_index, &to.ah_attr.grh.dgid), "ibv_query_gid");
    int connects = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | (type == IBV_QPT_UD ? 0 : connects)), "RTR");
    to.qp_state = IBV_QPS_RTS;
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
    return qp;
}

/* To itself; how many came as they were sent. */
static int send_to_itself(struct ibv_qp *qp, struct ibv_ah *ah, int count, int size)
{
    int right = 0, route = ah ? GRH : 0;
    for (int n = 0; n < count; n++) {
        struct ibv_sge there = {(uintptr_t)memory + SIZE, SIZE, mr->lkey}, here = {(uintptr_t)memory, size, mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = 1000 + n, .sg_list = &there, .num_sge = 1}, *bad_receive;
        struct ibv_send_wr wr = {.wr_id = n, .sg_list = &here, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
        wr.wr.ud.ah = ah, wr.wr.ud.remote_qpn = qp->qp_num, wr.wr.ud.remote_qkey = Q_KEY;
        memset(memory, n, size);
        must(!ibv_post_recv(qp, &receive, &bad_receive) && !ibv_post_send(qp, &wr, &bad), "posting");
        struct ibv_wc first = next(), second = next(), came = first.opcode == IBV_WC_RECV ? first : second;
        right += came.wr_id == 1000u + n && came.byte_len == (unsigned)(route + size) && came.src_qp == qp->qp_num &&
                 !!(came.wc_flags & IBV_WC_GRH) == !!ah && !memcmp(memory, memory + SIZE + route, size);
    }
    return right;
}

static void without_python(void)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index}};
    must(!ibv_query_gid(context, 1, gid_index, &attr.grh.dgid), "ibv_query_gid");
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    struct ibv_qp *ud = unreliable(IBV_QPT_UD), *uc = unreliable(IBV_QPT_UC);
    pthread_t other;
    must(ah && send_to_itself(ud, ah, 1, 64) && send_to_itself(uc, NULL, 1, 64), "the first, which finds a path");
    sem_init(&held, 0, 0), sem_init(&enough, 0, 0);
    pthread_create(&other, NULL, hold_python, NULL);
    sem_wait(&held);
    printf("%d datagrams, ", send_to_itself(ud, ah, 20, 64) + send_to_itself(ud, ah, 20, 1000));
    printf("%d of UC\n", send_to_itself(uc, NULL, 20, 64) + send_to_itself(uc, NULL, 20, 3000));
    sem_post(&enough);
    pthread_join(other, NULL);
    must(!ibv_destroy_qp(ud) && !ibv_destroy_qp(uc) && !ibv_destroy_ah(ah), "closing");
}

/* Says what it has, hears to whom its queue pairs belong, and polls. */
/* Register two pages for writing, of which the second has other rights. */
static void pages(void)
{
    long size = sysconf(_SC_PAGESIZE);
    char *both = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int rights[] = {PROT_READ | PROT_WRITE | PROT_EXEC, PROT_READ, PROT_NONE};
    for (int n = 0; n < 3; n++) {
        mprotect(both + size, size, rights[n]);
        struct ibv_mr *made = ibv_reg_mr(pd, both, 2 * size, IBV_ACCESS_LOCAL_WRITE);
        printf("%s\n", made ? "registered" : strerror(errno));
        if (made) ibv_dereg_mr(made);
    }
}

/* Requests that a kernel carries out, and packets, without the compiler of kernels. */
static void libraries(void)
{
    char line[4096];
    int compilers = 0;
    post(IBV_WR_RDMA_WRITE, mr->lkey, mr->rkey), say_status();
    post(IBV_WR_RDMA_WRITE, mr->lkey, 0xBAD), say_status();
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), maps)) compilers += strstr(line, "numpy") || strstr(line, "llvm");
    fclose(maps);
    printf("%d compilers\n", compilers);
}

static void wait_in_vain(void)
{
    static char large[LARGE];
    uint32_t numbers[2];
    struct ibv_wc wc;
    must((mr = ibv_reg_mr(pd, large, LARGE, mr_access)) != NULL, "ibv_reg_mr");
    printf("%u %u %lu %u\n", qps[0]->qp_num, qps[1]->qp_num, (unsigned long)large, mr->rkey);
    must(scanf("%u %u", &numbers[0], &numbers[1]) == 2, "scanf");
    for (int n = 0; n < 2; n++) connect_to(qps[n], numbers[n]);
    printf("connected\n");
    for (;;) ibv_poll_cq(cq, 1, &wc);
}

static void close_all(void)
{
    printf("busy %d\n", ibv_dealloc_pd(pd) == EBUSY);
    for (int n = 0; n < 2; n++) must(!ibv_destroy_qp(qps[n]), "ibv_destroy_qp");
    must(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr), "closing");
    must(!ibv_dealloc_pd(pd) && !ibv_close_device(context), "closing");
}

int main(int count, char **words)
{
    const char *what = words[count - 1];
    setbuf(stdout, NULL);
    open_all();
    if (!strcmp(what, "wait in vain")) wait_in_vain();
    if (!strcmp(what, "connecting threads")) connecting_threads();
    else connect_both();
    if (!strcmp(what, "wrong rkey")) post(IBV_WR_RDMA_WRITE, mr->lkey, 0xBAD), say_status();
    else if (!strcmp(what, "wrong lkey")) post(IBV_WR_RDMA_WRITE, 0xBAD, mr->rkey), say_status();
    else if (!strcmp(what, "events")) events();
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "fork")) forked();
    else if (!strcmp(what, "without python")) without_python();
    else if (!strcmp(what, "pages")) pages();
    else if (!strcmp(what, "libraries")) libraries();
    else if (!strcmp(what, "lacking")) {
        struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq};
        printf("%s\n", ibv_create_wq(context, &attr) ? "made" : strerror(errno));
    }
    close_all();
    return 0;
}

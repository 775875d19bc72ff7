/* Replicate blocks into the memory of another host by RDMA WRITE.
 *
 *     replicate PORT                          the replica: waits for a writer, ends when the writer has ended
 *     replicate PORT HOST BLOCKS              the writer; status 1 and the reason if a block does not arrive
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 4096
#define MAX_BLOCKS 4096

struct end { /* exchanged over TCP before the first block */
    uint32_t qp_number, rkey;
    uint64_t address;
    uint16_t lid;
};

static void require(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "replicate: %s failed\n", what);
    exit(1);
}

static int connect_tcp(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE}, *to;
    require(getaddrinfo(host, port, &hints, &to) == 0, "getaddrinfo");
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (host) {
        require(connect(fd, to->ai_addr, to->ai_addrlen) == 0, "connect");
        return fd;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    require(bind(fd, to->ai_addr, to->ai_addrlen) == 0 && listen(fd, 1) == 0, "listen");
    return accept(fd, NULL, NULL);
}

static void connect_queue_pair(struct ibv_qp *qp, const struct end *far)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = far->qp_number, .min_rnr_timer = 12,
        .ah_attr = {.dlid = far->lid, .port_num = 1}, .max_dest_rd_atomic = 1};
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    require(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    require(!ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                                           | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    require(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
                                          | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static enum ibv_wc_status write_block(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, const struct end *far, int block)
{
    uint64_t at = (uint64_t)block * BLOCK_BYTES;
    struct ibv_sge part = {.addr = (uintptr_t)mr->addr + at, .length = BLOCK_BYTES, .lkey = mr->lkey};
    struct ibv_send_wr *bad, work = {.sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    work.wr.rdma.remote_addr = far->address + at;
    work.wr.rdma.rkey = far->rkey;
    require(!ibv_post_send(qp, &work, &bad), "ibv_post_send");
    struct ibv_wc done;
    while (!ibv_poll_cq(cq, 1, &done)) continue;
    return done.status;
}

int main(int count, char **words)
{
    const char *host = count > 2 ? words[2] : NULL;
    int blocks = count > 3 ? atoi(words[3]) : 0, number;
    require((count == 2 || count == 4) && blocks <= MAX_BLOCKS, "reading PORT [HOST BLOCKS]");
    struct ibv_device **devices = ibv_get_device_list(&number);
    require(devices && number > 0, "finding an adapter");
    struct ibv_context *context = ibv_open_device(devices[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    char *memory = calloc(MAX_BLOCKS, BLOCK_BYTES);
    for (int block = 0; host && block < blocks; block++) memset(memory + block * BLOCK_BYTES, block % 251, BLOCK_BYTES);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, (size_t)MAX_BLOCKS * BLOCK_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attributes);
    struct ibv_port_attr port;
    require(mr && qp && !ibv_query_port(context, 1, &port), "opening the adapter");

    struct end near = {qp->qp_num, mr->rkey, (uintptr_t)memory, port.lid}, far;
    int fd = connect_tcp(host, words[1]);
    require(write(fd, &near, sizeof(near)) == sizeof(near) && read(fd, &far, sizeof(far)) == sizeof(far), "the exchange");
    connect_queue_pair(qp, &far);
    char ready = 0;
    require(write(fd, &ready, 1) == 1 && read(fd, &ready, 1) == 1, "the exchange");
    if (!host) { /* until the writer says how many blocks it wrote, or ends */
        if (read(fd, &blocks, sizeof(blocks)) != sizeof(blocks)) blocks = 0;
        int whole = 0;
        for (; whole < blocks && memory[whole * BLOCK_BYTES + BLOCK_BYTES - 1] == (char)(whole % 251); whole++) continue;
        printf("%d of %d blocks have arrived\n", whole, blocks);
        return whole != blocks;
    }
    for (int block = 0; block < blocks; block++) {
        enum ibv_wc_status status = write_block(qp, cq, mr, &far, block);
        if (status != IBV_WC_SUCCESS) {
            fprintf(stderr, "replicate: block %d: %s\n", block, ibv_wc_status_str(status));
            return 1;
        }
        if (block == 0) printf("writing\n"), fflush(stdout);
    }
    require(write(fd, &blocks, sizeof(blocks)) == sizeof(blocks), "the exchange");
    return 0;
}

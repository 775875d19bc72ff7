/* Text for the numbers of verbs, and rates. */
#include "weft.h"

#define TEXT(table, number) \
    ((unsigned)(number) < sizeof(table) / sizeof(*table) && table[number] ? table[number] : "unknown")

const char *ibv_node_type_str(int type)
{
    static const char *const words[] = {[IBV_NODE_CA] = "InfiniBand channel adapter", [IBV_NODE_SWITCH] = "InfiniBand switch",
                                        [IBV_NODE_ROUTER] = "InfiniBand router", [IBV_NODE_RNIC] = "iWARP NIC",
                                        [5] = "usNIC", [6] = "usNIC UDP", [7] = "unspecified"};
    return TEXT(words, type);
}

const char *ibv_port_state_str(int state)
{
    static const char *const words[] = {
        [IBV_PORT_NOP] = "no state change (NOP)", [IBV_PORT_DOWN] = "down", [IBV_PORT_INIT] = "init",
        [IBV_PORT_ARMED] = "armed", [IBV_PORT_ACTIVE] = "active", [IBV_PORT_ACTIVE_DEFER] = "active defer"};
    return TEXT(words, state);
}

const char *ibv_event_type_str(int type)
{
    static const char *const words[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error", [IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
        [IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
        [IBV_EVENT_COMM_EST] = "communication established", [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_PATH_MIG] = "path migrated", [IBV_EVENT_PATH_MIG_ERR] = "path migration request error",
        [IBV_EVENT_DEVICE_FATAL] = "local catastrophic error", [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error", [IBV_EVENT_LID_CHANGE] = "LID change",
        [IBV_EVENT_PKEY_CHANGE] = "P_Key change", [IBV_EVENT_SM_CHANGE] = "SM change",
        [IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error", [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
        [IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached", [IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
        [IBV_EVENT_GID_CHANGE] = "GID table change", [IBV_EVENT_WQ_FATAL] = "WQ fatal"};
    return TEXT(words, type);
}

const char *ibv_wc_status_str(int status)
{
    static const char *const words[] = {
        [IBV_WC_SUCCESS] = "success", [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error", [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error", [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
        [IBV_WC_MW_BIND_ERR] = "memory management operation error", [IBV_WC_BAD_RESP_ERR] = "bad response error",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error", [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error", [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded", [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
        [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request", [IBV_WC_REM_ABORT_ERR] = "aborted error",
        [IBV_WC_INV_EECN_ERR] = "invalid EE context number", [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
        [IBV_WC_FATAL_ERR] = "fatal error", [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
        [IBV_WC_GENERAL_ERR] = "general error", [22] = "TM error", [23] = "TM software rendezvous"};
    return TEXT(words, status);
}

const char *ibv_wr_opcode_str(int opcode)
{
    static const char *const words[] = {
        [IBV_WR_RDMA_WRITE] = "IBV_WR_RDMA_WRITE", [IBV_WR_RDMA_WRITE_WITH_IMM] = "IBV_WR_RDMA_WRITE_WITH_IMM",
        [IBV_WR_SEND] = "IBV_WR_SEND", [IBV_WR_SEND_WITH_IMM] = "IBV_WR_SEND_WITH_IMM",
        [IBV_WR_RDMA_READ] = "IBV_WR_RDMA_READ", [IBV_WR_ATOMIC_CMP_AND_SWP] = "IBV_WR_ATOMIC_CMP_AND_SWP",
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = "IBV_WR_ATOMIC_FETCH_AND_ADD", [IBV_WR_LOCAL_INV] = "IBV_WR_LOCAL_INV",
        [IBV_WR_BIND_MW] = "IBV_WR_BIND_MW", [IBV_WR_SEND_WITH_INV] = "IBV_WR_SEND_WITH_INV", [IBV_WR_TSO] = "IBV_WR_TSO",
        [IBV_WR_FLUSH] = "IBV_WR_FLUSH", [IBV_WR_ATOMIC_WRITE] = "IBV_WR_ATOMIC_WRITE"};
    return TEXT(words, opcode);
}

/* Codes of rates (InfiniBand Architecture volume 1, "PathRecord"), as multiples of 2.5 Gb/s where possible, and in Mb/s. */
static const struct { int rate, multiple, mbps; } rates[] = {
    {2, 1, 2500}, {5, 2, 5000}, {3, 4, 10000}, {6, 8, 20000}, {4, 12, 30000}, {7, 16, 40000}, {8, 24, 60000},
    {9, 32, 80000}, {10, 48, 120000}, {11, -1, 14062}, {12, -1, 56250}, {13, -1, 112500}, {14, -1, 168750},
    {15, -1, 25781}, {16, -1, 103125}, {17, -1, 206250}, {18, -1, 309375}, {19, 11, 28125}, {20, 20, 53125},
    {21, 160, 425000}, {22, 240, 637500}, {23, 320, 850000}, {24, 480, 1275000}};
#define RATES (sizeof(rates) / sizeof(*rates))

int ibv_rate_to_mult(int rate)
{
    for (size_t n = 0; n < RATES; n++) if (rates[n].rate == rate) return rates[n].multiple;
    return -1;
}
int mult_to_ibv_rate(int multiple)
{
    for (size_t n = 0; n < RATES; n++) if (multiple > 0 && rates[n].multiple == multiple) return rates[n].rate;
    return 0; /* IBV_RATE_MAX */
}
int ibv_rate_to_mbps(int rate)
{
    for (size_t n = 0; n < RATES; n++) if (rates[n].rate == rate) return rates[n].mbps;
    return -1;
}
int mbps_to_ibv_rate(int mbps)
{
    for (size_t n = 0; n < RATES; n++) if (rates[n].mbps == mbps) return rates[n].rate;
    return 0;
}

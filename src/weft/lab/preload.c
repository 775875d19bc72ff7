/*
 * libibumad over a lab of weft's: `weft exec` compiles this once and preloads it into unmodified programs.
 *
 * OpenSM, infiniband-diags and all others reach InfiniBand by the umad_* functions of libibumad, which read sysfs and
 * open character devices. Here the same functions ask the lab, by a unix socket whose path is in WEFT_SOCKET, as the
 * host in WEFT_HOST. Whole MADs of any length go over it; timeouts, retries and RMPP are the lab's, as they are the
 * kernel's on a real host.
 *
 *     question    a connection: struct question, back an int32 status, a uint32 length, and so many bytes; closed
 *     port        the same with OPEN_PORT, and stays open: frames of a uint32 length, struct user_mad and a MAD, in one
 *                 piece; those from the lab are no shorter than with a whole MAD, so that one call takes them
 *     IsSM        the same with SET_IS_SM: the bit is set until the connection is closed, by whatever ends the program
 *
 * layouts.py declares the structures; attach.py is the server.
 */
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 20, SWITCH = 2 /* a node type */, OPEN_AT_ONCE = 64, MAD_BYTES = 256 };
#define OPENIB_OUI 0x001405
#define ISSM "/dev/infiniband/issm:" /* then the adapter, a colon, the port */

/* -- more structures of umad.h, which the lab does not see --------------------------------------------------------- */

struct ca_pair {
	struct { char name[NAME]; uint32_t port; } smi, gsi;
};

struct device {
	struct device *next;
	const char *name;
};

struct reg_attr {
	uint8_t mgmt_class, version;
	uint32_t flags;
	uint64_t method_mask[2];
	uint32_t oui;
	uint8_t rmpp_version;
};

static int move_all(int fd, void *data, size_t bytes, int is_write) {
	for (char *at = data; bytes;) {
		ssize_t moved = is_write ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
		if (moved < 0 && errno == EINTR)
			continue;
		if (moved <= 0)
			return -EIO;
		at += moved;
		bytes -= moved;
	}
	return 0;
}

/* Two pieces at once: whoever reads is woken once. */
static int send_all(int fd, struct iovec pieces[2]) {
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
	ssize_t sent;
	do
		sent = sendmsg(fd, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -EIO;
	for (int n = 0; n < 2; n++) {
		size_t gone = (size_t)sent < pieces[n].iov_len ? (size_t)sent : pieces[n].iov_len;
		int status = move_all(fd, (char *)pieces[n].iov_base + gone, pieces[n].iov_len - gone, 1);
		if (status)
			return status;
		sent -= gone;
	}
	return 0;
}

static int dial(void) {
	const char *path = getenv("WEFT_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	if (!path || strlen(path) >= sizeof to.sun_path)
		return -ENODEV;
	strcpy(to.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to))
		return fd;
	close(fd);
	return -ENODEV;
}

/* Ask the lab. Bytes of the answer, which is cut to `room`; a negative errno. If `stay`, the connection is left there. */
static int ask(struct question *q, const char *ca, void *answer, size_t room, int *stay) {
	struct answer head;
	const char *host = getenv("WEFT_HOST");
	snprintf(q->host, sizeof q->host, "%s", host ? host : "");
	snprintf(q->ca, sizeof q->ca, "%s", ca ? ca : "");
	int fd = dial();
	if (fd < 0)
		return fd;
	int status = move_all(fd, q, sizeof *q, 1);
	if (!status)
		status = move_all(fd, &head, sizeof head, 0);
	if (!status && head.status)
		status = -head.status;
	size_t bytes = status ? 0 : head.length < room ? head.length : room;
	if (!status)
		status = move_all(fd, answer, bytes, 0);
	if (stay && !status)
		*stay = fd;
	else
		close(fd);
	return status ? status : (int)bytes;
}

/* -- adapters and ports -------------------------------------------------------------------------------------------- */

int umad_init(void) { return getenv("WEFT_SOCKET") ? 0 : -1; }
int umad_done(void) { return 0; }

int umad_get_cas_names(char names[][NAME], int max) {
	struct question q = {.kind = LIST_ADAPTERS};
	int bytes = ask(&q, NULL, names, (size_t)max * NAME, NULL);
	return bytes < 0 ? 0 : bytes / NAME;
}

static int get_port(enum kind kind, const char *ca, int number, struct port *port) {
	struct question q = {.kind = kind, .number = number};
	struct { struct port is; uint16_t pkeys[4096]; } got;
	int bytes = ask(&q, ca, &got, sizeof got, NULL);
	if (bytes < (int)sizeof got.is)
		return bytes < 0 ? bytes : -EIO;
	*port = got.is;
	port->pkeys = calloc(1, sizeof got.pkeys);
	if (port->pkeys)
		memcpy(port->pkeys, got.pkeys, bytes - sizeof got.is);
	return port->pkeys ? 0 : -ENOMEM;
}

int umad_get_port(const char *ca, int number, struct port *port) { return get_port(FIND_PORT, ca, number, port); }

int umad_release_port(struct port *port) {
	free(port->pkeys);
	port->pkeys = NULL;
	return 0;
}

int umad_release_ca(struct adapter *ca) {
	for (int n = 0; n < CA_PORTS; n++) {
		if (ca->ports[n])
			umad_release_port(ca->ports[n]);
		free(ca->ports[n]);
		ca->ports[n] = NULL;
	}
	return 0;
}

int umad_get_ca(const char *name, struct adapter *ca) {
	struct question q = {.kind = GET_ADAPTER};
	memset(ca, 0, sizeof *ca);
	int bytes = ask(&q, name, ca, offsetof(struct adapter, ports), NULL);
	if (bytes < 0)
		return bytes;
	for (int n = ca->node_type == SWITCH ? 0 : 1; n <= ca->numports && n < CA_PORTS; n++) {
		ca->ports[n] = calloc(1, sizeof(struct port));
		int status = ca->ports[n] ? get_port(GET_PORT, ca->name, n, ca->ports[n]) : -ENOMEM;
		if (status == -ENODEV) { /* a plane of a lab is a device with that port alone */
			free(ca->ports[n]);
			ca->ports[n] = NULL;
		} else if (status) {
			umad_release_ca(ca);
			return status;
		}
	}
	return 0;
}

int umad_get_ca_portguids(const char *name, uint64_t *guids, int max) {
	struct adapter ca;
	int status = umad_get_ca(name, &ca);
	if (status)
		return status;
	int count = guids ? ca.numports + 1 : 0;
	for (int n = 0; n < count && count <= max; n++)
		guids[n] = n < CA_PORTS && ca.ports[n] ? ca.ports[n]->guid : 0;
	umad_release_ca(&ca);
	return count > max ? -ENOMEM : count;
}

void umad_free_ca_device_list(struct device *head) {
	while (head) {
		struct device *next = head->next;
		free(head);
		head = next;
	}
}

struct device *umad_get_ca_device_list(void) {
	char names[128][NAME];
	struct device *head = NULL, **end = &head;
	int count = umad_get_cas_names(names, 128);
	for (int n = 0; n < count; n++) {
		struct device *one = calloc(1, sizeof *one + NAME);
		if (!one)
			break;
		one->name = memcpy(one + 1, names[n], NAME);
		*end = one;
		end = &one->next;
	}
	return head;
}

/* rdma-core 56 and later: a port may have its SMI at one device and its GSI at another. Here they are one. */
int umad_get_smi_gsi_pair_by_ca_name(const char *name, uint8_t number, struct ca_pair *pair, unsigned enforce_smi) {
	struct port port;
	(void)enforce_smi;
	if (umad_get_port(name, number, &port) < 0)
		return -ENODEV;
	memcpy(pair->smi.name, port.ca_name, NAME);
	pair->smi.port = port.number;
	pair->gsi = pair->smi;
	return umad_release_port(&port);
}

/* -- IsSM: a device that is open for as long as a subnet manager runs ---------------------------------------------- */

int umad_get_issm_path(const char *ca, int number, char path[], int max) {
	struct port port;
	int status = umad_get_port(ca, number, &port);
	if (status)
		return status;
	snprintf(path, max, ISSM "%s:%d", port.ca_name, port.number);
	return umad_release_port(&port);
}

static int open_issm(const char *path) {
	struct question q = {.kind = SET_IS_SM};
	char ca[NAME] = "";
	int fd, status = -ENODEV;
	if (sscanf(path + strlen(ISSM), "%19[^:]:%u", ca, &q.number) == 2)
		status = ask(&q, ca, NULL, 0, &fd);
	if (status < 0)
		errno = -status;
	return status < 0 ? -1 : fd;
}

static int open_as(const char *function, const char *path, int flags, mode_t mode) {
	if (!strncmp(path, ISSM, strlen(ISSM)))
		return open_issm(path);
	int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, function);
	return real(path, flags, mode);
}

#define OPEN(name)                                                                     \
	int name(const char *path, int flags, ...) {                                   \
		va_list more;                                                          \
		va_start(more, flags);                                                 \
		mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0; \
		va_end(more);                                                          \
		return open_as(#name, path, flags, mode);                              \
	}
OPEN(open)
OPEN(open64)

/* -- open ports ---------------------------------------------------------------------------------------------------- */

#define SMALLEST_FRAME (sizeof(uint32_t) + sizeof(struct user_mad) + MAD_BYTES)

static struct open_port {
	int fd;
	uint32_t number; /* by which the lab knows it */
	char *frame;     /* what came of the next frame, its length first */
	size_t have, room;
} ports[OPEN_AT_ONCE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the table, and of frames half read or written */

static void enter(int *cancel) {
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel); /* OpenSM cancels its receiver */
	pthread_mutex_lock(&lock);
}

static void leave(int cancel) {
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
}

static struct open_port *find(int fd) {
	for (int n = 0; n < OPEN_AT_ONCE; n++)
		if (ports[n].frame && ports[n].fd == fd)
			return &ports[n];
	return NULL;
}

int umad_open_port(const char *ca, int number) {
	struct question q = {.kind = OPEN_PORT, .number = number};
	struct open_port made = {.room = SMALLEST_FRAME};
	int n = 0, cancel, status = ask(&q, ca, &made.number, sizeof made.number, &made.fd);
	if (status < 0)
		return status;
	made.frame = malloc(made.room);
	enter(&cancel);
	while (n < OPEN_AT_ONCE && ports[n].frame)
		n++;
	if (n < OPEN_AT_ONCE && made.frame)
		ports[n] = made;
	leave(cancel);
	if (n < OPEN_AT_ONCE && made.frame)
		return made.fd;
	close(made.fd);
	free(made.frame);
	return -ENOMEM;
}

int umad_open_smi_port(const char *ca, int number) { return umad_open_port(ca, number); }

int umad_close_port(int fd) {
	int cancel;
	enter(&cancel);
	struct open_port *port = find(fd);
	if (port) {
		free(port->frame);
		*port = (struct open_port){0};
		close(fd);
	}
	leave(cancel);
	return port ? 0 : -EINVAL;
}

int umad_get_fd(int fd) { return fd; }
size_t umad_size(void) { return sizeof(struct user_mad); }
void *umad_get_mad(void *umad) { return ((struct user_mad *)umad)->mad; }
int umad_get_pkey(void *umad) { return ((struct user_mad *)umad)->pkey_index; }
int umad_set_pkey(void *umad, int index) { return ((struct user_mad *)umad)->pkey_index = index, 0; }

int umad_send(int fd, int agent, void *umad, int length, int timeout_ms, int retries) {
	struct user_mad *mad = umad;
	uint32_t bytes = sizeof *mad + length;
	struct iovec pieces[2] = {{&bytes, sizeof bytes}, {mad, bytes}};
	int cancel;
	mad->agent_id = agent;
	mad->timeout_ms = timeout_ms;
	mad->retries = retries;
	enter(&cancel);
	int status = find(fd) ? send_all(fd, pieces) : -EINVAL;
	leave(cancel);
	errno = -status;
	return status;
}

/* An error would be read again and again: OpenSM logs 25 MB of them a second. */
static void die_with_the_host(void) {
	static const char last[] = "weft: the lab has ended, and with it this host\n";
	_exit(write(STDERR_FILENO, last, sizeof last - 1) < 0 ? 2 : 1);
}

/* Read on without waiting: 1 if a whole frame is there, 0 if not yet. Never beyond it: callers poll the socket. */
static int fill(struct open_port *port) {
	for (;;) {
		uint32_t length = 0;
		size_t need = SMALLEST_FRAME;
		if (port->have >= sizeof length) {
			memcpy(&length, port->frame, sizeof length);
			need = sizeof length + length;
		}
		if (port->have == need && length)
			return 1;
		if (need > port->room) {
			char *larger = realloc(port->frame, need);
			if (!larger)
				return -ENOMEM;
			port->frame = larger;
			port->room = need;
		}
		ssize_t got = recv(port->fd, port->frame + port->have, need - port->have, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (got <= 0)
			die_with_the_host();
		port->have += got;
	}
}

static int take(struct open_port *port, struct user_mad *umad, int *length) {
	const struct user_mad *came = (const struct user_mad *)(port->frame + sizeof(uint32_t));
	size_t bytes = came->length, room = sizeof *umad + *length;
	memcpy(umad, came, bytes < room ? bytes : room);
	*length = bytes - sizeof *umad;
	if (bytes > room)
		return -ENOSPC; /* and once more with a larger buffer */
	port->have = 0;
	return umad->agent_id;
}

static int64_t now_ms(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* The next MAD if there is a buffer for it, else whether there is one. */
static int await(int fd, struct user_mad *umad, int *length, int timeout_ms) {
	int64_t end = now_ms() + timeout_ms;
	for (;;) {
		int cancel;
		enter(&cancel);
		struct open_port *port = find(fd);
		int status = port ? fill(port) : -EINVAL, whole = status == 1;
		if (whole)
			status = umad ? take(port, umad, length) : 0;
		leave(cancel);
		int64_t left = timeout_ms < 0 ? -1 : end - now_ms();
		if (!whole && !status && timeout_ms >= 0 && left <= 0)
			status = timeout_ms ? -ETIMEDOUT : -EWOULDBLOCK;
		if (whole || status) {
			errno = status < 0 ? -status : 0;
			return status;
		}
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		poll(&wait, 1, left);
	}
}

int umad_recv(int fd, void *umad, int *length, int timeout_ms) {
	return umad && length ? await(fd, umad, length, timeout_ms) : -EINVAL;
}

int umad_poll(int fd, int timeout_ms) { return await(fd, NULL, NULL, timeout_ms); }

/* -- agents -------------------------------------------------------------------------------------------------------- */

static int ask_of_port(int fd, struct question *q, void *answer, size_t room) {
	int cancel;
	enter(&cancel);
	struct open_port *port = find(fd);
	q->number = port ? port->number : 0;
	leave(cancel);
	return port ? ask(q, NULL, answer, room, NULL) : -EINVAL;
}

int umad_register2(int fd, struct reg_attr *is, uint32_t *agent) {
	struct question q = {REGISTER, 0, 0, is->mgmt_class, is->version, is->rmpp_version, is->flags, is->oui,
			     {is->method_mask[0], is->method_mask[1]}, "", "", 0};
	int status = ask_of_port(fd, &q, agent, sizeof *agent);
	errno = status < 0 ? -status : 0;
	return errno;
}

static int register_as(int fd, int mgmt_class, int version, uint8_t rmpp, uint32_t oui, const long *methods) {
	struct reg_attr is = {.mgmt_class = mgmt_class, .version = version, .rmpp_version = rmpp, .oui = oui};
	uint32_t agent;
	if (methods)
		memcpy(is.method_mask, methods, sizeof is.method_mask);
	return umad_register2(fd, &is, &agent) ? -EPERM : (int)agent;
}

int umad_register(int fd, int mgmt_class, int version, uint8_t rmpp, long methods[16 / sizeof(long)]) {
	return register_as(fd, mgmt_class, version, rmpp, OPENIB_OUI, methods);
}

int umad_register_oui(int fd, int mgmt_class, uint8_t rmpp, uint8_t oui[3], long methods[16 / sizeof(long)]) {
	if (mgmt_class < 0x30 || mgmt_class > 0x4f)
		return -EINVAL;
	return register_as(fd, mgmt_class, 1, rmpp, oui[0] << 16 | oui[1] << 8 | oui[2], methods);
}

int umad_unregister(int fd, int agent) {
	struct question q = {.kind = UNREGISTER, .agent = agent};
	int status = ask_of_port(fd, &q, NULL, 0);
	return status < 0 ? status : 0;
}

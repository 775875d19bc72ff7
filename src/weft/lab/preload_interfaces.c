/*
 * The interfaces of IPoIB that a program finds in its /sys (sysfs_mount.py) and the kernel does not know: their
 * permanent address, for which programs ask by ioctl. Ironic's agent does.
 *
 * Compiled as one with preload.c, whose headers it has.
 */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

/* Bytes that were read; 0 if there is no such interface. */
static unsigned read_address(const char *interface, uint8_t *address, unsigned room) {
	char path[64], text[64] = "";
	unsigned bytes = 0;
	snprintf(path, sizeof path, "/sys/class/net/%.*s/address", IFNAMSIZ, interface);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	for (const char *at = text; at + 1 < text + length && bytes < room; at += strlen("ff:"))
		if (sscanf(at, "%2hhx", &address[bytes++]) != 1)
			return 0;
	return bytes;
}

int ioctl(int fd, unsigned long request, ...) {
	va_list more;
	va_start(more, request);
	void *argument = va_arg(more, void *);
	va_end(more);
	int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	int status = real(fd, request, argument);
	if (status >= 0 || errno != ENODEV || request != SIOCETHTOOL)
		return status;
	struct ifreq *asked = argument;
	struct ethtool_perm_addr *wanted = (void *)asked->ifr_data;
	if (wanted->cmd == ETHTOOL_GPERMADDR) {
		unsigned bytes = read_address(asked->ifr_name, wanted->data, wanted->size);
		if (bytes) {
			wanted->size = bytes;
			return 0;
		}
	}
	errno = ENODEV;
	return -1;
}

/* Opens, connects and accepts the sockets between ranks. */
#define _GNU_SOURCE
#include "csrc/peers/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "csrc/base/random.h"

enum {
    BACKLOG = 4096, /* the system lowers it to its own limit */
    /* A peer whose host vanishes is dead after 10 s of silence and 3 probes, or after 20 s in which
     * it confirmed nothing that was sent. The kernel keeps these clocks, no thread wakes. */
    KEEPALIVE_IDLE_S = 10,
    KEEPALIVE_EVERY_S = 5,
    KEEPALIVE_PROBES = 3,
    UNCONFIRMED_MS = 20000
};

static int open_socket(int family)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

/* Close it; returns the negative errno that was found before. */
static int give_up(int fd)
{
    const int error = errno;
    (void)close(fd);
    return -error;
}

/* -------------------------------------------------------------------------------- Unix sockets */

static socklen_t unix_address(struct sockaddr_un *out, const struct tri_peer_address *of)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    memcpy(out->sun_path + 1, of->unix_name, of->unix_length); /* abstract: a 0 in front */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + of->unix_length);
}

static bool invent_name(struct tri_peer_address *own)
{
    uint8_t random[12];
    char name[TRI_PEER_UNIX_NAME + 1];
    if (tri_random(random, sizeof random) != TRIB_OK)
        return false;
    size_t n = (size_t)snprintf(name, sizeof name, "tributary-");
    for (size_t i = 0; i < sizeof random; i++)
        n += (size_t)snprintf(name + n, sizeof name - n, "%02x", random[i]);
    memcpy(own->unix_name, name, n);
    own->unix_length = (uint8_t)n;
    return true;
}

int tri_socket_listen_unix(struct tri_peer_address *own)
{
    struct sockaddr_un address;
    if (!invent_name(own))
        return -EIO;
    const socklen_t length = unix_address(&address, own);
    const int fd = open_socket(AF_UNIX);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    own->unix_length = 0;
    return fd < 0 ? fd : give_up(fd);
}

bool tri_socket_same_user(int fd)
{
    struct ucred found;
    socklen_t length = sizeof found;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &found, &length) == 0 && found.uid == geteuid();
}

int tri_socket_connect_unix(const struct tri_peer_address *to)
{
    struct sockaddr_un address;
    const socklen_t length = unix_address(&address, to);
    const int fd = open_socket(AF_UNIX);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) == 0)
        return fd;
    return give_up(fd);
}

/* ----------------------------------------------------------------------------------------- TCP */

union tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t tcp_address(union tcp_address *out, const struct tri_peer_tcp *from, uint16_t port)
{
    memset(out, 0, sizeof *out);
    if (from->family == 4) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        memcpy(&out->v4.sin_addr, from->bytes, sizeof out->v4.sin_addr);
        return sizeof out->v4;
    }
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons(port);
    memcpy(&out->v6.sin6_addr, from->bytes, sizeof out->v6.sin6_addr);
    return sizeof out->v6;
}

/* False for what no other host can reach: loopback, and addresses that need an interface's name. */
static bool read_interface(struct tri_peer_tcp *out, const struct ifaddrs *interface)
{
    union tcp_address address;
    memset(out, 0, sizeof *out);
    if (interface->ifa_addr == NULL || (interface->ifa_flags & IFF_UP) == 0 ||
        (interface->ifa_flags & IFF_LOOPBACK) != 0)
        return false;
    if (interface->ifa_addr->sa_family == AF_INET) {
        memcpy(&address.v4, interface->ifa_addr, sizeof address.v4);
        out->family = 4;
        memcpy(out->bytes, &address.v4.sin_addr, sizeof address.v4.sin_addr);
        return true;
    }
    if (interface->ifa_addr->sa_family != AF_INET6)
        return false;
    memcpy(&address.v6, interface->ifa_addr, sizeof address.v6);
    out->family = 6;
    memcpy(out->bytes, &address.v6.sin6_addr, sizeof address.v6.sin6_addr);
    return !IN6_IS_ADDR_LINKLOCAL(&address.v6.sin6_addr);
}

/* Bridges of containers and virtual machines exist on many hosts with the same address. */
static bool is_bridge(const char *interface)
{
    return strncmp(interface, "docker", 6) == 0 || strncmp(interface, "br-", 3) == 0 ||
           strncmp(interface, "virbr", 5) == 0 || strncmp(interface, "veth", 4) == 0;
}

/* In the order in which peers try them: IPv4, IPv6, bridges of either kind. */
static void find_addresses(struct tri_peer_address *own, bool with_v6)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    for (int round = 0; round < 4; round++) {
        for (struct ifaddrs *i = all; i != NULL && own->tcp_count < TRI_PEER_TCP_MAX;
             i = i->ifa_next) {
            struct tri_peer_tcp found;
            const bool bridge = round >= 2;
            const int family = round % 2 == 0 ? 4 : 6;
            if (read_interface(&found, i) && found.family == family &&
                is_bridge(i->ifa_name) == bridge && (family == 4 || with_v6))
                own->tcp[own->tcp_count++] = found;
        }
    }
    freeifaddrs(all);
}

/* A port by its number may have old connections of its last listener, which are no obstacle. */
static void reuse(int fd, uint16_t port)
{
    const int on = port != 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

/* IPv6 that takes IPv4, too; where there is no IPv6, IPv4. (Not where the port is taken for IPv6:
 * whoever comes that way would find another service.) */
static int open_listener(const union tcp_address *loopback, uint16_t port)
{
    const int off = 0;
    union tcp_address any;
    memset(&any, 0, sizeof any);
    any.v6.sin6_family = AF_INET6;
    any.v6.sin6_port = htons(port);
    int fd = loopback == NULL ? open_socket(AF_INET6) : -EAFNOSUPPORT;
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        reuse(fd, port);
        if (bind(fd, &any.any, sizeof any.v6) == 0)
            return fd;
        if (errno == EADDRINUSE)
            return give_up(fd);
        (void)close(fd);
    }
    memset(&any, 0, sizeof any);
    any.v4.sin_family = AF_INET;
    any.v4.sin_port = htons(port);
    fd = open_socket(AF_INET);
    if (fd >= 0)
        reuse(fd, port);
    if (fd < 0 || bind(fd, loopback != NULL ? &loopback->any : &any.any, sizeof any.v4) == 0)
        return fd;
    return give_up(fd);
}

static bool read_port(struct tri_peer_address *own, int fd, bool *out_v6)
{
    union tcp_address bound;
    socklen_t length = sizeof bound;
    memset(&bound, 0, sizeof bound);
    if (getsockname(fd, &bound.any, &length) != 0)
        return false;
    *out_v6 = bound.any.sa_family == AF_INET6;
    own->port = ntohs(*out_v6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return true;
}

int tri_socket_listen_tcp(struct tri_peer_address *own, bool loopback)
{
    const struct tri_peer_tcp here = {.family = 4, .bytes = {127, 0, 0, 1}};
    union tcp_address address;
    bool v6 = false;
    (void)tcp_address(&address, &here, own->port);
    const int fd = open_listener(loopback ? &address : NULL, own->port);
    if (fd < 0)
        return fd;
    if (listen(fd, BACKLOG) != 0 || !read_port(own, fd, &v6))
        return give_up(fd);
    if (loopback)
        own->tcp[own->tcp_count++] = here;
    else
        find_addresses(own, v6);
    return fd;
}

/* The options matter for speed and for hosts that vanish; without them the connection works. */
static void set_tcp_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, UNCONFIRMED_MS}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
}

int tri_socket_connect_tcp(const struct tri_peer_address *to, int which)
{
    union tcp_address address;
    const socklen_t length = tcp_address(&address, &to->tcp[which], to->port);
    const int fd = open_socket(address.any.sa_family);
    if (fd < 0)
        return fd;
    set_tcp_options(fd);
    if (connect(fd, &address.any, length) == 0 || errno == EINPROGRESS || errno == EINTR)
        return fd;
    return give_up(fd);
}

/* ---------------------------------------------------------------------------------------- both */

int tri_socket_error(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

int tri_socket_accept(int listener)
{
    union tcp_address from;
    socklen_t length = sizeof from;
    memset(&from, 0, sizeof from);
    const int fd = accept4(listener, &from.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return errno == EINTR || errno == EPROTO ? -ECONNABORTED : -errno;
    if (from.any.sa_family == AF_INET || from.any.sa_family == AF_INET6)
        set_tcp_options(fd);
    return fd;
}

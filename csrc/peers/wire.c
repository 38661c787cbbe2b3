/* A socket as a sequence of messages in either direction. */
#define _GNU_SOURCE
#include "csrc/peers/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "csrc/base/descriptor.h"

enum { FDS_TAKEN = 4 }; /* from one read; the kernel closes what is beyond */

struct tri_outgoing {
    struct tri_outgoing *next;
    size_t n, written;
    int fd;
    uint8_t bytes[];
};

void tri_wire_begin(struct tri_wire *wire, int fd, bool local, int32_t own, int32_t peer)
{
    memset(wire, 0, sizeof *wire);
    wire->fd = fd;
    wire->local = local;
    wire->own = own;
    wire->peer = peer;
    wire->end = &wire->first;
    wire->bytes = wire->small;
    wire->want = TRI_PEER_HEADER;
    wire->passed = -1;
}

void tri_wire_secure(struct tri_wire *wire, const struct tri_wire_key *in,
                     const struct tri_wire_key *out)
{
    wire->in_key = *in;
    wire->out_key = *out;
    wire->secure = true;
}

/* ------------------------------------------------------------------------------------- writing */

static void drop_first(struct tri_wire *wire)
{
    struct tri_outgoing *message = wire->first;
    wire->first = message->next;
    if (wire->first == NULL)
        wire->end = &wire->first;
    wire->queued -= message->n;
    tri_descriptor_close(&message->fd);
    free(message);
}

static void begin_message(struct tri_wire *wire)
{
    if (wire->bytes != wire->small)
        free(wire->bytes);
    wire->bytes = wire->small;
    wire->have = 0;
    wire->want = TRI_PEER_HEADER;
    tri_descriptor_close(&wire->passed);
}

void tri_wire_end(struct tri_wire *wire)
{
    while (wire->first != NULL)
        drop_first(wire);
    begin_message(wire);
    tri_descriptor_close(&wire->fd);
    explicit_bzero(&wire->in_key, sizeof wire->in_key);
    explicit_bzero(&wire->out_key, sizeof wire->out_key);
}

trib_status tri_wire_queue(struct tri_wire *wire, enum tri_peer_type type, const void *payload,
                           size_t length, int fd)
{
    const size_t n = TRI_PEER_HEADER + length;
    if (type > TRI_PEER_BYE && wire->queued + n > TRI_WIRE_QUEUE_MAX)
        return tri_fail(TRIB_ERR_TIMEOUT,
                        "rank %d does not read: %zu bytes wait for it, and %d may; send less, or "
                        "abort",
                        wire->peer, wire->queued, TRI_WIRE_QUEUE_MAX);
    struct tri_outgoing *out = malloc(sizeof *out + n);
    if (out == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for a message of %zu bytes to rank %d",
                        n, wire->peer);
    const struct tri_peer_message message = {.type = type,
                                             .sender = wire->own,
                                             .receiver = wire->peer,
                                             .sequence = wire->secure ? ++wire->out_sequence : 0,
                                             .length = (uint32_t)length};
    tri_peer_header(out->bytes, &message);
    if (length > 0)
        memcpy(out->bytes + TRI_PEER_HEADER, payload, length);
    if (wire->secure)
        tri_peer_sign(out->bytes, n, wire->out_key.bytes);
    out->next = NULL;
    out->n = n;
    out->written = 0;
    out->fd = fd;
    *wire->end = out;
    wire->end = &out->next;
    wire->queued += n;
    return TRIB_OK;
}

/* The file descriptor travels with the first byte of its message. */
static ssize_t write_some(int fd, struct tri_outgoing *message)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {message->bytes + message->written, message->n - message->written};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (message->fd >= 0) {
        memset(&control, 0, sizeof control);
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &message->fd, sizeof(int));
    }
    return sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int tri_wire_flush(struct tri_wire *wire)
{
    while (wire->first != NULL) {
        struct tri_outgoing *message = wire->first;
        const ssize_t n = write_some(wire->fd, message);
        if (n > 0) {
            message->written += (size_t)n;
            tri_descriptor_close(&message->fd);
            if (message->written == message->n)
                drop_first(wire);
        } else if (errno == EAGAIN) {
            return EAGAIN;
        } else if (message->fd >= 0 && errno != EINTR && errno != EPIPE && errno != ECONNRESET) {
            /* The limit on passed ones: the message goes without it. */
            tri_descriptor_close(&message->fd);
        } else if (errno != EINTR) {
            const int error = errno;
            while (wire->first != NULL)
                drop_first(wire);
            return error;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------- reading */

/* Keep one; close what comes in excess. */
static void take_passed(struct tri_wire *wire, struct msghdr *header)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (wire->passed < 0)
                wire->passed = fd;
            else
                tri_descriptor_close(&fd);
        }
    }
}

/* Without room for control data the kernel closes the file descriptors that come. */
static ssize_t receive(struct tri_wire *wire)
{
    union {
        char bytes[CMSG_SPACE(FDS_TAKEN * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {wire->bytes + wire->have, wire->want - wire->have};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (wire->secure && wire->local) {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
    }
    const ssize_t n = recvmsg(wire->fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n > 0 && header.msg_control != NULL)
        take_passed(wire, &header);
    return n;
}

/* Before the payload is read: no memory is allocated for what does not belong here. */
static bool belongs(const struct tri_wire *wire, const struct tri_peer_message *message)
{
    return message->receiver == wire->own && (wire->peer < 0 || message->sender == wire->peer) &&
           tri_peer_of_handshake(message->type) == !wire->secure &&
           (!wire->secure || message->sequence == wire->in_sequence + 1);
}

static bool make_room(struct tri_wire *wire, size_t n)
{
    if (n > TRI_WIRE_SMALL) {
        uint8_t *larger = malloc(n);
        if (larger == NULL)
            return false;
        memcpy(larger, wire->bytes, wire->have);
        wire->bytes = larger;
    }
    wire->want = n;
    return true;
}

/* `want` bytes are there. Returns 0 if that is a message, EAGAIN if more is wanted, or an errno. */
static int parse(struct tri_wire *wire, struct tri_peer_message *out)
{
    const enum tri_peer_parsed parsed = tri_peer_parse(wire->bytes, wire->have, out);
    if (parsed == TRI_PEER_INVALID || !belongs(wire, out))
        return EBADMSG;
    if (parsed == TRI_PEER_SHORT)
        return make_room(wire, out->bytes) ? EAGAIN : ENOMEM;
    if (wire->secure && !tri_peer_signed(wire->bytes, wire->have, wire->in_key.bytes))
        return EBADMSG;
    wire->in_sequence += wire->secure;
    if (out->type != TRI_PEER_FD)
        tri_descriptor_close(&wire->passed);
    return 0;
}

enum tri_wire_got tri_wire_read(struct tri_wire *wire, struct tri_peer_message *out, int *out_error)
{
    if (wire->have == wire->want)
        begin_message(wire); /* after the message that the last read returned */
    for (;;) {
        const ssize_t n = receive(wire);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return TRI_WIRE_NOTHING;
        *out_error = n < 0 ? errno : 0;
        if (n <= 0)
            return TRI_WIRE_END;
        wire->have += (size_t)n;
        if (wire->have < wire->want)
            continue;
        *out_error = parse(wire, out);
        if (*out_error == 0)
            return TRI_WIRE_MESSAGE;
        if (*out_error != EAGAIN)
            return TRI_WIRE_END;
    }
}

enum tri_wire_got tri_wire_discard(struct tri_wire *wire)
{
    uint8_t waste[4096];
    const ssize_t n = recv(wire->fd, waste, sizeof waste, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && errno == EINTR))
        return TRI_WIRE_MESSAGE;
    return n < 0 && errno == EAGAIN ? TRI_WIRE_NOTHING : TRI_WIRE_END;
}

int tri_wire_take_fd(struct tri_wire *wire)
{
    const int fd = wire->passed;
    wire->passed = -1;
    return fd;
}

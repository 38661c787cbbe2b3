/* Whoever does not know the id: strangers that connect, ranks with another id, and bytes that
 * somebody puts into an open connection. None of them disturbs the ranks that do. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "csrc/peers/peer.h"
#include "csrc/peers/service.h"
#include "csrc/peers/socket.h"
#include "tests/peers/crew.h"
#include "tests/process.h"

enum { MANY = 100, SHORT_MS = 5000 };

/* ------------------------------------------------------------------------------------ a stranger */

static int call(const struct member *member, int rank)
{
    const struct tri_peer_address *to = &member->crew->addresses[rank];
    return to->unix_length > 0 ? tri_socket_connect_unix(to) : tri_socket_connect_tcp(to, 0);
}

static int call_or_fail(const struct member *member, int rank)
{
    struct pollfd connects = {.fd = call(member, rank), .events = POLLOUT};
    CHECK_MSG(connects.fd >= 0, "%s", strerror(-connects.fd));
    CHECK(poll(&connects, 1, CREW_BOUND_MS) == 1 && tri_socket_error(connects.fd) == 0);
    return connects.fd;
}

static void write_all(int fd, const uint8_t *bytes, size_t n)
{
    CHECK(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

/* The next message of a handshake; false at the end of the connection. */
static bool next(struct tri_wire *wire, struct tri_peer_message *out)
{
    int error;
    enum tri_wire_got got;
    while ((got = tri_wire_read(wire, out, &error)) == TRI_WIRE_NOTHING) {
        struct pollfd more = {.fd = wire->fd, .events = POLLIN};
        if (!CHECK(poll(&more, 1, CREW_BOUND_MS) == 1))
            return false;
    }
    return got == TRI_WIRE_MESSAGE;
}

static size_t make(uint8_t *out, enum tri_peer_type type, uint32_t length)
{
    const struct tri_peer_message message = {.type = type,
                                             .sender = 0,
                                             .receiver = 1,
                                             .sequence = type > TRI_PEER_REFUSAL,
                                             .length = length};
    tri_peer_header(out, &message);
    memset(out + TRI_PEER_HEADER, 0x5a, length < 64 ? length : 64);
    return TRI_PEER_HEADER + length;
}

/* Connections that say nothing. Most lose their slot to later ones, the last when its time is over. */
static void silent(struct member *member)
{
    char byte;
    struct pollfd last = {.events = POLLIN};
    const int acceptor = atomic_load(&member->crew->pids[1]);
    const long before = process_descriptors_of(acceptor);
    for (int i = 0; i < MANY; i++)
        last.fd = call_or_fail(member, 1);
    check_sleep_ms(100);
    CHECK(process_descriptors_of(acceptor) > before);
    CHECK(process_descriptors_of(acceptor) <= before + member->crew->size + 16);
    CHECK(recv(last.fd, &byte, 1, 0) < 0 && errno == EAGAIN);
    CHECK(poll(&last, 1, CREW_BOUND_MS) == 1 && recv(last.fd, &byte, 1, 0) <= 0);
}

static void garbage(struct member *member)
{
    uint8_t bytes[1000];
    for (int i = 0; i < 20; i++) {
        memset(bytes, i * 13, sizeof bytes);
        write_all(call_or_fail(member, 1), bytes, sizeof bytes);
    }
}

/* Each type as the first message, and a length that the type allows once the channel is open. */
static void wrong_order(struct member *member)
{
    uint8_t bytes[TRI_PEER_HEADER + 64];
    for (int type = TRI_PEER_CHALLENGE; type <= TRI_PEER_SHRINK; type++) {
        const int fd = call_or_fail(member, 1);
        struct tri_wire wire;
        struct tri_peer_message message;
        (void)make(bytes, (enum tri_peer_type)type,
                   type >= TRI_PEER_PROGRESS ? 600
                   : type <= TRI_PEER_PROOF  ? 32
                                             : (type == TRI_PEER_FD) * 8u);
        write_all(fd, bytes, TRI_PEER_HEADER + (type < TRI_PEER_PROGRESS) * 32);
        tri_wire_begin(&wire, fd, true, 0, 1);
        CHECK_MSG(!next(&wire, &message), "type %d was answered", type);
        tri_wire_end(&wire);
    }
}

/* A handshake one byte at a time, up to a proof that is wrong. */
static void drip(struct member *member)
{
    uint8_t bytes[TRI_PEER_HEADER + TRI_NONCE];
    struct tri_wire wire;
    struct tri_peer_message message;
    const int fd = call_or_fail(member, 1);
    const size_t n = make(bytes, TRI_PEER_HELLO, TRI_NONCE);
    tri_wire_begin(&wire, fd, true, 0, 1);
    for (size_t i = 0; i < n; i++) {
        write_all(fd, bytes + i, 1);
        check_sleep_ms(2);
    }
    CHECK(next(&wire, &message) && message.type == TRI_PEER_CHALLENGE);
    (void)make(bytes, TRI_PEER_PROOF, TRI_PROOF);
    for (size_t i = 0; i < n; i++) {
        write_all(fd, bytes + i, 1);
        check_sleep_ms(2);
    }
    CHECK(next(&wire, &message) && message.type == TRI_PEER_REFUSAL);
    CHECK(!next(&wire, &message));
    tri_wire_end(&wire);
}

/* A rank 0 of its own, with another id. */
static void other_id(struct member *member)
{
    static struct crew own;
    struct crew *shared = member->crew;
    member->crew = &own;
    own.size = shared->size;
    own.flags = shared->flags;
    own.addresses[1] = shared->addresses[1];
    member->rank = 0;
    CHECK_OK(crew_listen(member, "another id"));
    CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("rank 1 (process ");
    CHECK_DETAIL("refused rank 0: they have different ids");
    crew_close(member);
    member->crew = shared;
}

/* Another user; of processes that may change theirs. */
static void other_user(struct member *member)
{
    uint8_t bytes[TRI_PEER_HEADER + TRI_NONCE];
    struct tri_wire wire;
    struct tri_peer_message message;
    if (member->crew->addresses[1].unix_length == 0 || setresuid(65534, 65534, 65534) != 0)
        return;
    const int fd = call_or_fail(member, 1);
    const size_t n = make(bytes, TRI_PEER_HELLO, TRI_NONCE);
    (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    tri_wire_begin(&wire, fd, true, 0, 1);
    CHECK(!next(&wire, &message));
    tri_wire_end(&wire);
}

static void (*const strangers[])(struct member *) = {silent, garbage,  wrong_order,
                                                     drip,   other_id, other_user};
static const char *const names[] = {"silent",       "garbage",    "wrong order",
                                    "byte by byte", "another id", "another user"};
enum { STRANGERS = sizeof strangers / sizeof *strangers };
static int which; /* of the case */

/* Rank 1 accepts; process 2 is the stranger; then rank 0 comes, and finds room at once. */
static void with_stranger(struct member *member)
{
    struct crew *crew = member->crew;
    if (member->rank == 2) {
        crew_meet(crew, 0, 3);
        check_sleep_ms(20); /* rank 1 accepts */
        strangers[which](member);
        crew_meet(crew, 1, 2);
        crew_meet(crew, 2, 3);
        CHECK(call(member, 1) == -ECONNREFUSED ||
              crew->addresses[1].unix_length == 0); /* nobody listens any more */
        return;
    }
    uint8_t bytes[8];
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    crew_meet(crew, 0, 3);
    if (member->rank == 0)
        crew_meet(crew, 1, 2);
    const double start = check_now_ms();
    CHECK_OK(crew_connect(member, CREW_BOUND_MS));
    CHECK_MSG(member->rank == 1 || check_now_ms() - start < SHORT_MS, "%.1f ms",
              check_now_ms() - start);
    crew_fill(bytes, sizeof bytes, 6);
    CHECK_OK(tri_peers_send(member->peers, !member->rank, TRI_PEER_SHRINK, bytes, sizeof bytes));
    CHECK(crew_await(member, CREW_MESSAGE, !member->rank, 1).tag == 6);
    crew_meet(crew, 2, 3);
    crew_close(member);
}

/* ------------------------------------------------------------------------ ranks that do not agree */

/* Rank 1 has another id: rank 0 learns so at once, and rank 1 when its time is over. */
static void disagree(struct member *member)
{
    CHECK_OK(crew_listen(member, member->rank == 0 ? "the id" : "another"));
    crew_publish(member);
    if (member->rank == 0) {
        const double start = check_now_ms();
        CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_MISMATCH);
        CHECK(check_now_ms() - start < SHORT_MS);
    } else {
        CHECK_STATUS(crew_connect(member, 1000), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 0 (process ");
        CHECK_DETAIL("one that claimed to be it was refused");
    }
    crew_meet(member->crew, 0, 2);
    crew_close(member);
}

/* Process 1 takes rank 1's place without knowing the id: it answers with bytes of its own, or with
 * the connector's own proof. */
static void answer(struct member *member, bool reflect)
{
    struct tri_wire wire;
    struct tri_peer_message message;
    uint8_t bytes[TRI_PROOF] = {7};
    struct pollfd comes = {.fd = -1, .events = POLLIN};
    struct tri_peer_address *own = &member->crew->addresses[1];
    tri_peer_address_fill(own, 1, 2);
    comes.fd = member->crew->flags & TRI_PEERS_NO_UNIX ? tri_socket_listen_tcp(own, true)
                                                       : tri_socket_listen_unix(own);
    crew_publish(member);
    CHECK(poll(&comes, 1, CREW_BOUND_MS) == 1);
    tri_wire_begin(&wire, tri_socket_accept(comes.fd), true, 1, 0);
    CHECK(next(&wire, &message) && message.type == TRI_PEER_HELLO);
    CHECK_OK(tri_wire_queue(&wire, TRI_PEER_CHALLENGE, message.payload, TRI_NONCE, -1));
    CHECK(tri_wire_flush(&wire) == 0);
    CHECK(next(&wire, &message) && message.type == TRI_PEER_PROOF);
    CHECK_OK(
        tri_wire_queue(&wire, TRI_PEER_PROOF, reflect ? message.payload : bytes, TRI_PROOF, -1));
    CHECK(tri_wire_flush(&wire) == 0);
    CHECK(!next(&wire, &message));
    tri_wire_end(&wire);
    (void)close(comes.fd);
}

static void impostor(struct member *member)
{
    if (member->rank == 1) {
        answer(member, which != 0);
        return;
    }
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("rank 1 (process ");
    crew_close(member);
}

/* ------------------------------------------------------------------------------- open connections */

enum { GARBAGE, REPLAY, FLIPPED, OTHER_RANK, SKIPPED, HELLO_AGAIN, INJECTIONS };
static const char *const injections[] = {"garbage",        "a message again", "a changed bit",
                                         "another sender", "a gap",           "a handshake"};

/* Rank 0 writes into its own connection what somebody on the way could. Returns the bytes. */
static size_t inject(uint8_t *out, const struct tri_wire *wire)
{
    struct tri_peer_message message = {.type = TRI_PEER_SHRINK,
                                       .sender = which == OTHER_RANK ? 2 : 0,
                                       .receiver = 1,
                                       .sequence = which == SKIPPED ? 2 : 1,
                                       .length = 100};
    if (which == HELLO_AGAIN)
        return make(out, TRI_PEER_HELLO, TRI_NONCE);
    memset(out, 0x33, 200);
    if (which == GARBAGE)
        return 200;
    tri_peer_header(out, &message);
    crew_fill(out + TRI_PEER_HEADER, 100, 1);
    tri_peer_sign(out, TRI_PEER_HEADER + 100, wire->out_key.bytes);
    out[TRI_PEER_HEADER + 99] ^= which == FLIPPED;
    return TRI_PEER_HEADER + 100;
}

static void injected(struct member *member)
{
    uint8_t bytes[300];
    crew_open(member);
    crew_meet(member->crew, 0, 2);
    if (member->rank == 0) {
        tri_service_lock();
        const struct tri_wire *wire = &member->peers->of[1].channel->wire;
        const size_t n = inject(bytes, wire);
        for (int i = 0; i <= (which == REPLAY); i++)
            write_all(wire->fd, bytes, n);
        tri_service_unlock();
        (void)crew_await(member, CREW_DEAD, 1, 1); /* rank 1 has hung up */
    } else {
        const struct crew_event event = crew_await(member, CREW_DEAD, 0, 1);
        CHECK_MSG(strstr(event.text, "what came over its connection is not from it") != NULL,
                  "\"%s\"", event.text);
        CHECK(crew_count(member, CREW_MESSAGE, 0) == (which == REPLAY));
    }
    crew_meet(member->crew, 1, 2);
    crew_close(member);
}

/* ----------------------------------------------------------------------------- short of descriptors */

/* Rank 1 cannot accept, and does not spin. */
static void short_of_descriptors(struct member *member)
{
    struct rlimit limit, low;
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    crew_meet(member->crew, 0, 2);
    if (member->rank == 0) {
        CHECK_STATUS(crew_connect(member, 1000), TRIB_ERR_TIMEOUT);
    } else {
        low = limit;
        low.rlim_cur = 3;
        const clock_t before = clock();
        CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
        CHECK_STATUS(crew_connect(member, 1000), TRIB_ERR_TIMEOUT);
        CHECK_MSG(clock() - before < CLOCKS_PER_SEC / 20, "%ld us of CPU",
                  (long)(clock() - before));
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    crew_meet(member->crew, 1, 2);
    crew_close(member);
}

static void on_both(int size, int processes, void (*body)(struct member *member), const char *what)
{
    check_begin("Unix sockets: %s", what);
    (void)crew_run(size, processes, TRI_PEERS_NO_PIDFD, body);
    check_end();
    check_begin("TCP: %s", what);
    (void)crew_run(size, processes, TRI_PEERS_NO_UNIX | TRI_PEERS_NO_PIDFD, body);
    check_end();
}

int main(void)
{
    char name[64];
    for (which = 0; which < STRANGERS; which++) {
        (void)snprintf(name, sizeof name, "a stranger: %s", names[which]);
        on_both(2, 3, with_stranger, name);
    }
    on_both(2, 2, disagree, "ranks with different ids");
    which = 0;
    on_both(2, 2, impostor, "an acceptor that does not know the id");
    which = 1;
    on_both(2, 2, impostor, "an acceptor that returns the proof it got");
    for (which = 0; which < INJECTIONS; which++) {
        (void)snprintf(name, sizeof name, "put into a connection: %s", injections[which]);
        on_both(2, 2, injected, name);
    }
    on_both(2, 2, short_of_descriptors, "no descriptor for an accept");
    return check_finish("stranger_test");
}

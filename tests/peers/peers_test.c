/* Channels between processes: messages, file descriptors, orderly ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "csrc/peers/peer.h"
#include "csrc/peers/service.h"
#include "tests/peers/crew.h"
#include "tests/process.h"

static const struct {
    const char *name;
    uint32_t flags;
    enum tri_peer_way way;
} ways[] = {{"Unix sockets", 0, TRI_PEER_UNIX}, {"TCP", TRI_PEERS_NO_UNIX, TRI_PEER_TCP}};

static enum tri_peer_way way_of(const struct member *member)
{
    return member->crew->flags & TRI_PEERS_NO_UNIX ? TRI_PEER_TCP : TRI_PEER_UNIX;
}

/* ---------------------------------------------------------------------------------------- messages */

enum { MESSAGES = 24 };

static size_t length_of(int i)
{
    static const size_t lengths[] = {8, 9, 208, 209, 4096, 65536};
    return lengths[(size_t)i % (sizeof lengths / sizeof *lengths)];
}

/* As the queue has room. */
static void send_all(struct member *member, int rank)
{
    static uint8_t bytes[TRI_PEER_PAYLOAD_MAX];
    const double end = check_now_ms() + CREW_BOUND_MS;
    for (int i = 0; i < MESSAGES; i++) {
        trib_status status = TRIB_ERR_TIMEOUT;
        crew_fill(bytes, length_of(i), (uint64_t)i);
        while (status == TRIB_ERR_TIMEOUT && check_now_ms() < end) {
            status =
                tri_peers_send(member->peers, rank, i % 2 ? TRI_PEER_SHRINK : TRI_PEER_PROGRESS,
                               bytes, length_of(i));
            if (status == TRIB_ERR_TIMEOUT)
                check_sleep_ms(1);
        }
        CHECK_OK(status);
    }
}

static void exchange(struct member *member)
{
    const int size = member->crew->size;
    crew_open(member);
    for (int rank = 0; rank < size; rank++) {
        CHECK(tri_peers_way(member->peers, rank) ==
              (rank == member->rank ? TRI_PEER_HERE : way_of(member)));
        if (rank != member->rank)
            send_all(member, rank);
    }
    for (int rank = 0; rank < size; rank++) {
        for (int i = 0; i < MESSAGES && rank != member->rank; i++) {
            const struct crew_event event = crew_await(member, CREW_MESSAGE, rank, i + 1);
            CHECK(event.tag == (uint64_t)i && event.length == length_of(i) && event.intact);
            CHECK(event.type == (i % 2 ? TRI_PEER_SHRINK : TRI_PEER_PROGRESS));
        }
    }
    crew_meet(member->crew, 0, size);
    CHECK(crew_count(member, CREW_MESSAGE, -1) == (size - 1) * MESSAGES);
    CHECK(crew_count(member, CREW_DEAD, -1) == 0);
    crew_close(member);
}

static void mistakes(struct member *member)
{
    static uint8_t bytes[TRI_PEER_PAYLOAD_MAX + 1];
    crew_open(member);
    struct tri_peers *peers = member->peers;
    CHECK_STATUS(tri_peers_send(peers, member->rank, TRI_PEER_SHRINK, bytes, 1),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tri_peers_send(peers, 2, TRI_PEER_SHRINK, bytes, 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tri_peers_send(peers, -1, TRI_PEER_SHRINK, bytes, 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tri_peers_send(peers, !member->rank, TRI_PEER_SHRINK, bytes, sizeof bytes),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tri_peers_send(peers, !member->rank, TRI_PEER_BYE, bytes, 0),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tri_peers_send_fd(peers, !member->rank, -1, 0), TRIB_ERR_SYSTEM);
    const long before = process_descriptors();
    const trib_status status = tri_peers_send_fd(peers, !member->rank, 1, 77);
    CHECK(status == (way_of(member) == TRI_PEER_UNIX ? TRIB_OK : TRIB_ERR_UNSUPPORTED));
    if (status == TRIB_OK)
        (void)close(crew_await(member, CREW_FD, !member->rank, 1).fd);
    else
        CHECK(process_descriptors() == before);
    crew_meet(member->crew, 0, 2);
    crew_close(member);
}

/* Rank 1 is stopped, and is not dead; what was accepted for it arrives when it goes on. */
static void full_queue(struct member *member)
{
    static uint8_t bytes[TRI_PEER_PAYLOAD_MAX];
    struct crew *crew = member->crew;
    crew_open(member);
    crew_meet(crew, 0, 2);
    if (member->rank == 0) {
        uint64_t sent = 0;
        trib_status status = TRIB_OK;
        CHECK(kill(atomic_load(&crew->pids[1]), SIGSTOP) == 0);
        check_sleep_ms(50);
        while (status == TRIB_OK && sent < 1000) {
            crew_fill(bytes, sizeof bytes, sent);
            status = tri_peers_send(member->peers, 1, TRI_PEER_SHRINK, bytes, sizeof bytes);
            sent += status == TRIB_OK;
        }
        CHECK(status == TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 1 does not read");
        CHECK(sent >= TRI_WIRE_QUEUE_MAX / sizeof bytes - 1);
        check_sleep_ms(300);
        CHECK(crew_count(member, CREW_DEAD, 1) == 0 && crew_count(member, CREW_LEFT, 1) == 0);
        atomic_store(&crew->word, sent);
        CHECK(kill(atomic_load(&crew->pids[1]), SIGCONT) == 0);
    }
    crew_meet(crew, 1, 2);
    if (member->rank == 1) {
        const int sent = (int)atomic_load(&crew->word);
        for (int i = 0; i < sent; i++) {
            const struct crew_event event = crew_await(member, CREW_MESSAGE, 0, i + 1);
            CHECK(event.tag == (uint64_t)i && event.length == sizeof bytes && event.intact);
        }
        CHECK(crew_count(member, CREW_MESSAGE, 0) == sent);
    }
    crew_meet(crew, 2, 2);
    crew_close(member);
}

/* ------------------------------------------------------------------------------------------- ends */

/* Rank 0 sends, closes and lives on; the others see the messages, then that it left. */
static void bye(struct member *member)
{
    const int size = member->crew->size;
    enum { SENT = 10 };
    static uint8_t bytes[40000]; /* 10 of them are more than a Unix socket holds */
    member->slow_ms = 2;
    crew_open(member);
    crew_meet(member->crew, 0, size);
    if (member->rank == 0) {
        for (int rank = 1; rank < size; rank++)
            for (int i = 0; i < SENT; i++) {
                crew_fill(bytes, sizeof bytes, (uint64_t)i);
                CHECK_OK(tri_peers_send(member->peers, rank, TRI_PEER_SHRINK, bytes, sizeof bytes));
            }
        const double start = check_now_ms();
        crew_close(member);
        CHECK_MSG(check_now_ms() - start < 5000, "%.1f ms", check_now_ms() - start);
    } else {
        (void)crew_await(member, CREW_LEFT, 0, 1);
        CHECK(crew_count(member, CREW_MESSAGE, 0) == SENT);
        CHECK(tri_peers_way(member->peers, 0) == TRI_PEER_GONE);
        CHECK_STATUS(tri_peers_send(member->peers, 0, TRI_PEER_SHRINK, bytes, 8), TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 0 (process ");
    }
    crew_meet(member->crew, 1, size);
    CHECK(crew_count(member, CREW_DEAD, -1) == 0);
    CHECK(crew_count(member, CREW_LEFT, -1) == (member->rank != 0));
    crew_meet(member->crew, 2, size);
    if (member->rank != 0)
        crew_close(member);
}

/* A bye reaches the peer although messages of the peer were never read. */
static void bye_unread(struct member *member)
{
    uint8_t bytes[TRI_PEER_PAYLOAD_MAX];
    crew_open(member);
    crew_meet(member->crew, 0, 2);
    crew_fill(bytes, sizeof bytes, 1);
    while (member->rank == 1 && crew_count(member, CREW_LEFT, 0) == 0)
        if (tri_peers_send(member->peers, 0, TRI_PEER_SHRINK, bytes, sizeof bytes) ==
            TRIB_ERR_TIMEOUT)
            check_sleep_ms(1);
    if (member->rank == 1)
        CHECK(crew_count(member, CREW_DEAD, 0) == 0);
    else
        check_sleep_ms(20);
    crew_close(member);
}

/* -------------------------------------------------------------------------------- file descriptors */

static void descriptors(struct member *member)
{
    uint8_t bytes[8];
    char text[8] = "";
    crew_open(member);
    if (member->rank == 0) {
        const int fd = memfd_create("a test's", MFD_CLOEXEC);
        CHECK(fd >= 0 && write(fd, "tensors", 7) == 7);
        for (uint64_t i = 0; i < 10; i++) {
            crew_fill(bytes, sizeof bytes, i);
            CHECK_OK(tri_peers_send(member->peers, 1, TRI_PEER_SHRINK, bytes, sizeof bytes));
            CHECK_OK(tri_peers_send_fd(member->peers, 1, fd, UINT64_C(0x123456789abcdef0) + i));
        }
        (void)close(fd);
    } else {
        for (int i = 0; i < 10; i++) {
            const struct crew_event event = crew_await(member, CREW_FD, 0, i + 1);
            CHECK(event.tag == UINT64_C(0x123456789abcdef0) + (uint64_t)i);
            CHECK(fcntl(event.fd, F_GETFD) == FD_CLOEXEC);
            CHECK(pread(event.fd, text, 7, 0) == 7 && strcmp(text, "tensors") == 0);
            CHECK(close(event.fd) == 0);
        }
        CHECK(member->events[0].kind == CREW_MESSAGE && member->events[1].kind == CREW_FD);
        CHECK(member->events[18].kind == CREW_MESSAGE && member->events[19].kind == CREW_FD);
    }
    crew_meet(member->crew, 0, 2);
    crew_close(member);
}

/* One that nobody takes, and one that comes with another message. */
static void unwanted_descriptors(struct member *member)
{
    uint8_t bytes[300];
    member->refuses_fds = true;
    crew_open(member);
    crew_fill(bytes, sizeof bytes, 5);
    crew_meet(member->crew, 0, 2);
    const long before = process_descriptors();
    crew_meet(member->crew, 1, 2);
    for (int i = 0; i < 20 && member->rank == 0; i++) {
        CHECK_OK(tri_peers_send_fd(member->peers, 1, 1, 0));
        tri_service_lock();
        CHECK_OK(tri_channel_send(member->peers->of[1].channel, TRI_PEER_SHRINK, bytes,
                                  i % 2 ? 8 : sizeof bytes, fcntl(1, F_DUPFD_CLOEXEC, 0)));
        tri_service_unlock();
    }
    if (member->rank == 1) {
        (void)crew_await(member, CREW_MESSAGE, 0, 20);
        CHECK(crew_count(member, CREW_FD, 0) == 20);
    }
    crew_meet(member->crew, 2, 2);
    CHECK_MSG(process_descriptors() == before, "rank %d has %ld descriptors, and had %ld",
              member->rank, process_descriptors(), before);
    crew_meet(member->crew, 3, 2);
    crew_close(member);
}

static void run(int size, uint32_t flags, void (*body)(struct member *member), const char *name)
{
    check_begin("%s", name);
    crew_run(size, size, flags, body);
    check_end();
}

int main(void)
{
    char name[128];
    (void)signal(SIGPIPE, SIG_DFL); /* a write that raises it ends the child */
    for (size_t i = 0; i < 2; i++) {
        const struct {
            const char *what;
            int size;
            void (*body)(struct member *member);
        } cases[] = {{"messages of 2 ranks", 2, exchange},
                     {"messages of 4 ranks", 4, exchange},
                     {"mistakes", 2, mistakes},
                     {"a full queue", 2, full_queue},
                     {"a rank leaves", 3, bye},
                     {"a rank leaves in mid-flow", 2, bye_unread}};
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            (void)snprintf(name, sizeof name, "%s: %s", ways[i].name, cases[c].what);
            run(cases[c].size, ways[i].flags, cases[c].body, name);
        }
    }
    run(2, 0, descriptors, "file descriptors");
    run(2, 0, unwanted_descriptors, "file descriptors that nobody wants");
    return check_finish("peers_test");
}

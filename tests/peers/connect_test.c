/* Opening channels where the first attempt fails: it is tried again, and at the next address. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "csrc/peers/peer.h"
#include "csrc/peers/socket.h"
#include "tests/peers/crew.h"

static void greet(struct member *member)
{
    uint8_t bytes[8];
    crew_fill(bytes, sizeof bytes, 3);
    CHECK_OK(tri_peers_send(member->peers, !member->rank, TRI_PEER_SHRINK, bytes, sizeof bytes));
    CHECK(crew_await(member, CREW_MESSAGE, !member->rank, 1).tag == 3);
    crew_meet(member->crew, 0, 2);
    CHECK(crew_count(member, CREW_DEAD, -1) == 0);
    crew_close(member);
}

/* Rank 1 takes rank 0's first connection off its own listener: what comes of that is not its. */
static int take_first(struct member *member)
{
    const bool tcp = (member->crew->flags & TRI_PEERS_NO_UNIX) != 0;
    struct pollfd comes = {.fd = member->peers->accept.listeners[!tcp].fd, .events = POLLIN};
    CHECK(poll(&comes, 1, CREW_BOUND_MS) == 1);
    const int fd = tri_socket_accept(comes.fd);
    CHECK(fd >= 0);
    return fd;
}

static void dropped(struct member *member)
{
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank == 1)
        (void)close(take_first(member));
    CHECK_OK(crew_connect(member, CREW_BOUND_MS));
    greet(member);
}

/* Nobody answers at the first connection. */
static void held(struct member *member)
{
    int first = -1;
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank == 1)
        first = take_first(member);
    CHECK_OK(crew_connect(member, CREW_BOUND_MS));
    greet(member);
    if (first >= 0)
        (void)close(first);
}

/* Rank 0 as if rank 1 had sent these addresses, of which only 127.0.0.1 listens. */
static void with_addresses(struct member *member, const uint8_t last_bytes[], int n)
{
    static struct crew own;
    memcpy(own.addresses, member->crew->addresses, sizeof own.addresses);
    own.addresses[1].tcp_count = (uint8_t)n;
    for (int i = 0; i < n; i++)
        own.addresses[1].tcp[i] =
            (struct tri_peer_tcp){.family = 4, .bytes = {127, 0, 0, last_bytes[i]}};
    own.size = member->crew->size;
    own.flags = member->crew->flags;
    struct crew *shared = member->crew;
    member->crew = &own;
    const trib_status status = crew_connect(member, CREW_BOUND_MS);
    member->crew = shared;
    CHECK_STATUS(status, n == 2 ? TRIB_ERR_CLOSED : TRIB_OK);
}

static void third_address(struct member *member)
{
    static const uint8_t last[] = {2, 3, 1, 4};
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank == 0)
        with_addresses(member, last, 4);
    else
        CHECK_OK(crew_connect(member, CREW_BOUND_MS));
    greet(member);
}

static void no_address(struct member *member)
{
    static const uint8_t last[] = {2, 3};
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank == 0) {
        with_addresses(member, last, 2);
        CHECK_DETAIL("rank 1 (process ");
        CHECK_DETAIL("does not listen any more");
    }
    crew_meet(member->crew, 0, 2);
    crew_close(member);
}

/* Rank 0 has no Unix sockets and rank 1 no TCP address. */
static void no_way(struct member *member)
{
    if (member->rank == 0)
        member->crew->flags |= TRI_PEERS_NO_UNIX;
    CHECK_OK(crew_listen(member, "the id"));
    if (member->rank == 1)
        member->crew->addresses[1].tcp_count = member->peers->own.tcp_count = 0;
    crew_publish(member);
    CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_SYSTEM);
    CHECK_DETAIL("share no Unix sockets, and rank 1 has no address for TCP");
    crew_meet(member->crew, 0, 2);
    crew_close(member);
}

/* Rank 0 of another version, and a rank that has the number of another. */
static void wrong_addresses(struct member *member)
{
    CHECK_OK(crew_listen(member, "the id"));
    if (member->rank == 0)
        member->crew->addresses[0].version++;
    crew_publish(member);
    CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("let all ranks use the same version");
    crew_meet(member->crew, 0, 2);
    if (member->rank == 0) {
        member->crew->addresses[0].version--;
        member->crew->addresses[0].pid++;
        CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_MISMATCH);
        CHECK_DETAIL("rank 0 got back another address than it gave");
    }
    crew_meet(member->crew, 1, 2);
    crew_close(member);
}

static void run(uint32_t flags, void (*body)(struct member *member), const char *what)
{
    check_begin("%s: %s", (flags & TRI_PEERS_NO_UNIX) != 0 ? "TCP" : "Unix sockets", what);
    (void)crew_run(2, 2, flags, body);
    check_end();
}

int main(void)
{
    run(0, dropped, "the first connection is dropped");
    run(TRI_PEERS_NO_UNIX, dropped, "the first connection is dropped");
    run(0, held, "nobody answers at the first connection");
    run(TRI_PEERS_NO_UNIX, held, "nobody answers at the first connection");
    run(TRI_PEERS_NO_UNIX, third_address, "only the third address listens");
    run(TRI_PEERS_NO_UNIX, no_address, "no address listens");
    run(0, no_way, "no way between two ranks");
    run(0, wrong_addresses, "addresses that no rank has sent");
    return check_finish("connect_test");
}

/* Where a rank is, and how to reach it. */
#define _GNU_SOURCE
#include "csrc/peers/address.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "csrc/base/machine.h"
#include "csrc/base/text.h"
#include "csrc/peers/death.h"

enum { MAGIC = 0x54525041, VERSION = 1 };

_Static_assert(sizeof(struct tri_peer_address) == 224, "every rank has the same layout");

static uint64_t namespace_of(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (uint64_t)found.st_ino : 0;
}

void tri_peer_address_fill(struct tri_peer_address *out, int32_t rank, int32_t size)
{
    memset(out, 0, sizeof *out);
    out->magic = MAGIC;
    out->version = VERSION;
    out->rank = rank;
    out->size = size;
    out->machine = tri_machine();
    out->net_namespace = namespace_of("/proc/self/ns/net");
    out->pid_namespace = namespace_of("/proc/self/ns/pid");
    out->pid = (int32_t)tri_machine_process();
    out->start = tri_process_start(out->pid);
    tri_machine_name(out->host, sizeof out->host);
}

static bool lengths_valid(const struct tri_peer_address *address)
{
    if (address->unix_length > TRI_PEER_UNIX_NAME || address->tcp_count > TRI_PEER_TCP_MAX)
        return false;
    for (int i = 0; i < address->tcp_count; i++)
        if (address->tcp[i].family != 4 && address->tcp[i].family != 6)
            return false;
    return memchr(address->host, '\0', sizeof address->host) != NULL;
}

trib_status tri_peer_address_check(const struct tri_peer_address *address, int32_t rank,
                                   int32_t size)
{
    if (address->magic != MAGIC || address->version != VERSION)
        return tri_fail(TRIB_ERR_MISMATCH,
                        "rank %d: its address has version %u of format %08x, and this rank knows "
                        "version %u of %08x; let all ranks use the same version of Tributary",
                        rank, address->version, address->magic, VERSION, MAGIC);
    if (address->rank != rank || address->size != size || !lengths_valid(address))
        return tri_fail(TRIB_ERR_MISMATCH,
                        "rank %d of %d: its address names rank %d of %d, %u bytes of a Unix socket "
                        "and %u TCP addresses, or is damaged",
                        rank, size, address->rank, address->size, address->unix_length,
                        address->tcp_count);
    return TRIB_OK;
}

bool tri_peer_same_pids(const struct tri_peer_address *a, const struct tri_peer_address *b)
{
    return a->machine != 0 && a->machine == b->machine && a->pid_namespace != 0 &&
           a->pid_namespace == b->pid_namespace;
}

bool tri_peer_same_process(const struct tri_peer_address *a, const struct tri_peer_address *b)
{
    return tri_peer_same_pids(a, b) && a->pid == b->pid && a->start == b->start;
}

bool tri_peer_same_unix(const struct tri_peer_address *a, const struct tri_peer_address *b)
{
    return a->machine != 0 && a->machine == b->machine && a->net_namespace != 0 &&
           a->net_namespace == b->net_namespace && a->unix_length > 0 && b->unix_length > 0;
}

struct tri_peer_text tri_peer_text(const struct tri_peer_address *address)
{
    struct tri_peer_text out;
    char host[TRI_PEER_HOST];
    tri_text_printable(host, (const uint8_t *)address->host, strlen(address->host));
    (void)snprintf(out.text, sizeof out.text, "rank %d (process %d on %s)", address->rank,
                   address->pid, host);
    return out;
}

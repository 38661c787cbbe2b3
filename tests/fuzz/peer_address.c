/* Fuzz target: bytes that another rank gives as its address when a communicator is created. Only an
 * address of the expected rank passes; whatever is used of one that does lies inside it, and its name
 * can be printed.
 *
 * The input is the address; then what differs between the rank that it names and the expected one, and
 * the same of the sizes; then where another address differs, and how. */
#include <string.h>

#include "csrc/peers/address.h"
#include "tests/fuzz/fuzz.h"

static bool valid(const struct tri_peer_address *address, int32_t rank, int32_t size)
{
    static struct tri_peer_address own;
    if (own.magic == 0)
        tri_peer_address_fill(&own, 0, 1);
    bool good = address->magic == own.magic && address->version == own.version &&
                address->rank == rank && address->size == size;
    good = good && address->unix_length <= sizeof address->unix_name && address->tcp_count <= 4;
    for (int i = 0; good && i < address->tcp_count; i++)
        good = address->tcp[i].family == 4 || address->tcp[i].family == 6;
    return good && memchr(address->host, '\0', sizeof address->host) != NULL;
}

/* The name goes to logs and details, within texts that end. */
static void check_text(const struct tri_peer_address *address)
{
    char begin[64];
    const struct tri_peer_text text = tri_peer_text(address);
    const size_t n = (size_t)snprintf(begin, sizeof begin, "rank %d (process %d on ",
                                      (int)address->rank, (int)address->pid);
    FUZZ_CHECK(memchr(text.text, '\0', sizeof text.text) != NULL);
    FUZZ_CHECK(strncmp(text.text, begin, n) == 0);
    FUZZ_CHECK(strlen(text.text) == n + strlen(address->host) + 1);
    for (const char *c = text.text; *c != '\0'; c++)
        FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* Two that are one process have comparable pids; a socket is shared only if both have one. */
static void check_pair(const struct tri_peer_address *a, const struct tri_peer_address *b)
{
    const bool process = tri_peer_same_process(a, b), pids = tri_peer_same_pids(a, b);
    const bool socket = tri_peer_same_unix(a, b);
    FUZZ_CHECK(process == tri_peer_same_process(b, a) && pids == tri_peer_same_pids(b, a));
    FUZZ_CHECK(socket == tri_peer_same_unix(b, a));
    FUZZ_CHECK(!process || (pids && a->pid == b->pid && a->start == b->start));
    FUZZ_CHECK(!(pids || socket) || (a->machine == b->machine && a->machine != 0));
    FUZZ_CHECK(!socket || (a->unix_length > 0 && b->unix_length > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct bytes in = {data, bytes};
    struct tri_peer_address address, other;
    memset(&address, 0, sizeof address);
    (void)bytes_copy(&in, &address, sizeof address);
    const int32_t rank = (int32_t)((uint32_t)address.rank ^ bytes_u8(&in));
    const int32_t size = (int32_t)((uint32_t)address.size ^ bytes_u8(&in));
    const trib_status status = STATUS(tri_peer_address_check(&address, rank, size));
    FUZZ_CHECK(status == (valid(&address, rank, size) ? TRIB_OK : TRIB_ERR_MISMATCH));
    if (status != TRIB_OK)
        return 0;
    check_text(&address);
    other = address;
    const uint32_t at = bytes_below(&in, sizeof other);
    ((uint8_t *)&other)[at] ^= bytes_u8(&in);
    check_pair(&address, &other);
    return 0;
}

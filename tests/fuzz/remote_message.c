/* Fuzz target: bytes that may tell of another rank's calls, to their parser. What it takes can be
 * printed, and comes out again as it went in. */
#include <string.h>

#include "csrc/core/operation.h"
#include "csrc/core/remote_message.h"
#include "tests/fuzz/fuzz.h"

static void check_call(const struct tri_call_copy *call)
{
    if (!call->known)
        return;
    FUZZ_CHECK(call->record.operation >= 0 && call->record.operation < TRI_OPERATIONS);
    FUZZ_CHECK(tri_operations[call->record.operation].name != NULL);
    FUZZ_CHECK(call->record.algorithm == NULL && call->record.peer >= -1);
    FUZZ_CHECK(memchr(call->algorithm, '\0', sizeof call->algorithm) != NULL);
    for (const char *c = call->algorithm; *c != '\0'; c++)
        FUZZ_CHECK(*c > 0x20 && *c < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri_remote_message found, again;
    uint8_t packed[TRI_REMOTE_BYTES], twice[TRI_REMOTE_BYTES];
    if (!tri_remote_unpack(&found, data, bytes))
        return 0;
    check_call(&found.newest);
    check_call(&found.asked);
    tri_remote_pack(packed, &found);
    FUZZ_CHECK(tri_remote_unpack(&again, packed, sizeof packed));
    tri_remote_pack(twice, &again);
    FUZZ_CHECK(memcmp(packed, twice, sizeof packed) == 0);
    return 0;
}

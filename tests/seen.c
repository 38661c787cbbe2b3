/* What a search through states has seen. */
#include "tests/seen.h"

#include <stdlib.h>
#include <string.h>

bool seen_open(struct seen *seen, size_t most)
{
    for (seen->room = 1; seen->room < 2 * most + 64;)
        seen->room *= 2;
    seen->hashes = calloc(seen->room, sizeof *seen->hashes);
    return seen->hashes != NULL;
}

void seen_close(struct seen *seen)
{
    free(seen->hashes);
    seen->hashes = NULL;
}

static uint64_t hash_of(const void *state, size_t n)
{
    const unsigned char *const bytes = state;
    uint64_t hash = 0x9e3779b97f4a7c15u, word;
    for (size_t i = 0; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0xd6e8feb86659fd93u;
        hash ^= hash >> 32;
    }
    return hash == 0 ? 1 : hash;
}

bool seen_new(struct seen *seen, const void *state, size_t bytes)
{
    const uint64_t hash = hash_of(state, bytes);
    size_t i = hash & (seen->room - 1);
    for (; seen->hashes[i] != 0; i = (i + 1) & (seen->room - 1))
        if (seen->hashes[i] == hash)
            return false;
    seen->hashes[i] = hash;
    return true;
}

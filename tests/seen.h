/* What a search through states has seen: a set of their hashes. */
#ifndef TRI_TESTS_SEEN_H
#define TRI_TESTS_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seen {
    uint64_t *hashes; /* 0: free */
    size_t room;      /* a power of two */
};

/* For `most` states and a few more. False if there is no memory. */
bool seen_open(struct seen *seen, size_t most);
void seen_close(struct seen *seen);

/* False if the state, a multiple of 8 bytes, was seen before; it has been now. States of the same hash count
 * as one. */
bool seen_new(struct seen *seen, const void *state, size_t bytes);

#endif

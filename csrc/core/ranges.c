/* Do ranges of memory overlap where they must not? */
#include "csrc/core/ranges.h"

#include <stdlib.h>

static int by_begin(const void *left, const void *right)
{
    const struct tri_range *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static bool ascending(const struct tri_range *ranges, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (ranges[i].begin < ranges[i - 1].begin)
            return false;
    return true;
}

bool tri_ranges_sort(struct tri_range *ranges, size_t n)
{
    if (ascending(ranges, n))
        return false;
    qsort(ranges, n, sizeof *ranges, by_begin);
    return true;
}

bool tri_ranges_collide(struct tri_range *ranges, size_t n, struct tri_range pair[2])
{
    (void)tri_ranges_sort(ranges, n);
    /* The ranges so far that reach furthest: of all, and of the written ones. */
    const struct tri_range *any = NULL, *written = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct tri_range *here = &ranges[i];
        const struct tri_range *other = here->written ? any : written;
        if (other != NULL && other->end > here->begin) {
            pair[0] = *other;
            pair[1] = *here;
            return true;
        }
        if (any == NULL || here->end > any->end)
            any = here;
        if (here->written && (written == NULL || here->end > written->end))
            written = here;
    }
    return false;
}

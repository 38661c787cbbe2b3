/* The last list of a communicator: what of it is checked, sorted and laid out. Training passes the
 * same tensors step after step, and a call with the same ones does none of that again. What it asks
 * of the driver is not kept: the caller may free an allocation at any time, and nobody hears of
 * that. */
#ifndef TRI_LISTS_LAST_H
#define TRI_LISTS_LAST_H

#include "csrc/core/ranges.h"
#include "csrc/lists/plan.h"

enum { TRI_LIST_SCALARS = 2 }; /* ranges of a call beside its tensors, at most */

/* One block of memory: free() ends it. */
struct tri_last_list {
    size_t n, most; /* tensors of the last list, and how many there is room for */
    /* They pass every check but that of their memory, for a call that takes floats alone or
     * any type, and no two overlap. */
    bool checked, floats_only;
    bool laid_out, weighted; /* `layout` and the slices of `plan` are theirs, in such a call */
    const void *table;       /* that has these slices, since a call was queued; NULL: none has */
    size_t nranges;          /* those that are not empty; none with TRIB_UNCHECKED. All `n` of them
                              * only if each has been looked at, checked or not */
    struct tri_layout layout;
    trib_tensor *tensors;
    struct tri_range *ranges; /* ascending; room for those of the scalars, too */
    struct tri_plan *plan;
};

/* That of the communicator, made or replaced if it has no room for `n` tensors; NULL if memory is
 * short. */
struct tri_last_list *tri_last_list(struct trib_comm *comm, size_t n);

/* Does a call of this list take floats alone? */
bool tri_list_floats_only(const struct tri_list *list);

/* Are these tensors kept, checked for such a call? */
bool tri_last_checked(const struct tri_last_list *last, const struct tri_list *list);

/* From now on they are: they have passed the checks, and `ranges` are theirs. */
void tri_last_keep(struct tri_last_list *last, const struct tri_list *list);

#endif

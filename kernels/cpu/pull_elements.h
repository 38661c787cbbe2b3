/* Which elements a worker of pull is at, and where they are: a part of its steps. */
#ifndef TRI_CPU_PULL_ELEMENTS_H
#define TRI_CPU_PULL_ELEMENTS_H

#include "kernels/cpu/pull_worker.h"

/* The rank at that distance. */
int tri_pull_worker_peer(const struct tri_pull_worker *w, int distance);

/* Bytes of the unit that is next. */
size_t tri_pull_unit_bytes(const struct tri_pull_worker *w);
/* Of a copy: ranks whose parts are copied. */
int tri_pull_sources(const struct tri_pull_worker *w);
/* Ranks to which a result goes. */
int tri_pull_goals(const struct tri_pull_worker *w);
/* What the worker stores before the barrier of a round, in pieces: parts, of so many blocks or for so many peers. */
int tri_pull_parts(const struct tri_pull_worker *w);
/* What it finds behind the barrier, of the round before: results, of so many peers. */
int tri_pull_results(const struct tri_pull_worker *w);

/* `first` and `end` become the elements that this worker makes in the round: its piece, or else each `workers`-th
 * unit, from the first on. Or those of part `copied`, or of result `copied`. False if there are none. */
bool tri_pull_find(struct tri_pull_worker *w);
bool tri_pull_find_part(struct tri_pull_worker *w);
bool tri_pull_find_result(struct tri_pull_worker *w);
/* In pieces: is there such a round? */
bool tri_pull_has_round(const struct tri_pull_worker *w);

/* Where the unit is that is next: of a part, and where to; what is reduced or copied, of a rank; of a result, and
 * where it goes on a rank. */
const char *tri_pull_part_from(const struct tri_pull_worker *w);
char *tri_pull_part_to(const struct tri_pull_worker *w);
const char *tri_pull_folded(const struct tri_pull_worker *w);
const char *tri_pull_result_from(const struct tri_pull_worker *w);
char *tri_pull_result_to(const struct tri_pull_worker *w, int rank);

#endif

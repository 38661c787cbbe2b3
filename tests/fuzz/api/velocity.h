/* What a call of a sparse allreduce with momentum makes of velocities, computed beside the library:
 * by the header's formulas, from residuals that are read before and after the call. What they do not
 * tell is NaN, and so is what follows from it. */
#ifndef TRI_TESTS_FUZZ_VELOCITY_H
#define TRI_TESTS_FUZZ_VELOCITY_H

#include "tests/fuzz/api/world.h"

/* What becomes of the velocity where an element was sent. */
enum velocity_rule {
    VELOCITY_STAYS,   /* nothing: no masking, or all is sent */
    VELOCITY_MASKED,  /* it becomes 0 */
    VELOCITY_SHARED,  /* the same; but also elements of acc that are 0 are sent */
    VELOCITY_RESTORED /* the same; but the residual may get something back there */
};
/* Of rank r's state as it is. */
enum velocity_rule velocity_rule(const struct world *world, int r);

/* One element of one rank in one call that was applied. */
struct velocity_step {
    double velocity;      /* the new one, before anything was sent */
    double before, after; /* the residual */
    double result;
};

/* The new velocity of the next call. In place, or without momentum, it is the gradient. */
double velocity_next(const struct world *world, int r, size_t i, double gradient);
/* What the call leaves of it, without the multiplication in place. Checks the residual. */
double velocity_after(const struct world *world, const struct velocity_step *step,
                      enum velocity_rule rule);
/* In place: may a call that leaves `velocity` leave `found` in the caller's buffer? */
bool velocity_may_be(const struct world *world, const struct velocity_step *step, double velocity,
                     double found);

/* All velocities become `value`; the exports have them; what import makes of them, with `add` on one
 * rank. */
void velocity_set(struct world *world, double value);
void velocity_save(struct world *world);
void velocity_restore(struct world *world);
void velocity_add(struct world *world, int r);

#endif

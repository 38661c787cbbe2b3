/* Choosing by the Gaussian estimate. If the elements of acc were normally distributed with mean m
 * and deviation s, the part d = k / n of them would lie further than |PhiInverse(d / 2)| s from m.
 * The estimate m + |PhiInverse(d / 2)| s is compared with magnitudes, as published: it means well
 * for m near 0. Then it is moved by the rule of a set of constants until about k magnitudes lie
 * above.
 *
 * Gradients have heavier tails, and error feedback piles residuals up below the threshold, so the
 * estimate errs in both directions. In any case 4k + 1024 are chosen at most: the largest; and
 * if it lay above everything in TRI_IDLE_CALLS calls in a row, the k largest are chosen in the next
 * one, without it. (Of a tensor of 1 and -1 alone 20 steps do not move it low enough, in any
 * call.) */
#include "csrc/sparse/published/gaussian.h"

#include <math.h>
#include <string.h>

#include "csrc/sparse/published/constants.h"

void tri_gaussian_lay_out(struct tri_gaussian *gaussian, struct tri_arena *arena,
                          const struct tri_sparse_params *params)
{
    tri_counted_lay_out(&gaussian->counted, arena, params);
    gaussian->estimate = tri_arena_take(arena, trib_dtype_size(params->acc));
}

/* c[0] + c[1] x + ... + c[7] x^7 */
static double polynomial(const double c[8], double x)
{
    double sum = c[7];
    for (int i = 6; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

/* M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied
 * Statistics 37 (1988), 477-484: PPND16, to about 16 digits. Quotients of polynomials: in the
 * middle, in the tails, and far out. */
double tri_gaussian_quantile(double p)
{
    static const double middle[2][8] = {
        {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
         1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
         3.3430575583588128105e4, 2.5090809287301226727e3},
        {1, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
         2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
         5.2264952788528545610e3}};
    static const double tail[2][8] = {
        {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
         3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
         2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
         1.05075007164441684324e-9}};
    static const double far[2][8] = {
        {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
         2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15}};
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        const double x = 0.180625 - q * q;
        return q * polynomial(middle[0], x) / polynomial(middle[1], x);
    }
    const double r = sqrt(-log(q < 0 ? p : 1 - p));
    const double x = r <= 5 ? polynomial(tail[0], r - 1.6) / polynomial(tail[1], r - 1.6)
                            : polynomial(far[0], r - 5) / polynomial(far[1], r - 5);
    return q < 0 ? -x : x;
}

/* The threshold, where the headers' value is. */
static trib_status estimate(struct tri_run *run, const struct tri_gaussian *gaussian)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_constants *constants =
        params->constants != NULL ? params->constants : tri_constants_find("vgg");
    const struct tri_fit fit = tri_rule_fit(&constants->gaussian, params->k);
    const double z = fabs(tri_gaussian_quantile((double)params->k / (double)params->count / 2));
    TRI_TRY(run->kernels->gauss(&run->acc, z, gaussian->estimate, run->scratch, run->stream));
    return run->kernels->fit(&run->acc, &fit, gaussian->estimate,
                             tri_counted_value(&gaussian->counted, run), run->scratch, run->stream);
}

trib_status tri_gaussian_choose(struct tri_run *run, struct tri_gaussian *gaussian)
{
    const struct tri_sparse_params *params = run->params;
    struct tri_counted *counted = &gaussian->counted;
    const bool exact = tri_idle_too_long(&gaussian->idle);
    const struct tri_selection selection = {
        .count = params->count,
        .k = exact ? params->k : tri_limit(params),
        .threshold = exact || params->k == 0 ? NULL : tri_counted_value(counted, run),
        .fallbacks = run->scalars.fallbacks,
    };
    TRI_TRY(tri_run_accumulate(run, tri_counted_header(counted, run)));
    if (selection.threshold != NULL)
        TRI_TRY(estimate(run, gaussian));
    TRI_TRY(
        run->kernels->select(&run->acc, &selection, &counted->chosen, run->scratch, run->stream));
    TRI_TRY(tri_counted_fetch(run, counted, NULL));
    if (!counted->consistent || params->k == 0)
        return TRIB_OK;
    run->fallbacks = exact;
    tri_idle_count(&gaussian->idle, counted->counts[params->rank]);
    return TRIB_OK;
}

struct tri_persistent tri_gaussian_persistent(struct tri_gaussian *gaussian)
{
    return (struct tri_persistent){.host = &gaussian->idle, .host_bytes = sizeof gaussian->idle};
}

bool tri_gaussian_valid(const void *device, const void *host,
                        const struct tri_sparse_params *params)
{
    struct tri_idle idle;
    (void)device;
    (void)params;
    memcpy(&idle, host, sizeof idle);
    return tri_valid_idle(&idle);
}

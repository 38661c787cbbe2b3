/* A place to inject at in front of a backend's member, or after it. */
#ifndef TRI_TESTS_INJECTION_PLACES_H
#define TRI_TESTS_INJECTION_PLACES_H

#include "csrc/backend.h"
#include "csrc/base/status.h"
#include "tests/injection/injection.h"

extern const struct tri_backend tri_backend_host;

/* It fails instead of doing anything. */
#define FAILS(of, member, code, parameters, arguments)                                             \
    static trib_status of##_##member parameters                                                    \
    {                                                                                              \
        static const struct injection_place place = {#of "." #member, code, false};                \
        const trib_status fault = injection_reach(&place);                                         \
        return fault != TRIB_OK ? fault : real_##of->member arguments;                             \
    }

/* It does what it should, and says that it failed: what is freed is gone, what is waited for is
 * over. */
#define FAILS_AFTER(of, member, code, ignored, parameters, arguments)                              \
    static trib_status of##_##member parameters                                                    \
    {                                                                                              \
        static const struct injection_place place = {#of "." #member, code, ignored};              \
        const trib_status fault = injection_reach(&place);                                         \
        const trib_status status = real_##of->member arguments;                                    \
        return status != TRIB_OK ? status : fault;                                                 \
    }

/* It cannot fail. */
#define ANSWERS(type, of, member, parameters, arguments)                                           \
    static type of##_##member parameters                                                           \
    {                                                                                              \
        static const struct injection_place place = {#of "." #member, TRIB_OK, false};             \
        (void)injection_reach(&place);                                                             \
        return real_##of->member arguments;                                                        \
    }

/* kernels.c */
const struct tri_kernels *injection_kernels(void);

#endif

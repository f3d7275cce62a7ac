/* Reductions: the built-in operations by which collectives combine the elements
 * of arrays. The results are numpy's, bit by bit, with these limits: which of
 * two NaNs a sum or a product keeps is not defined, as in numpy; and a complex
 * product rounds each of its operations, while numpy's last bits depend on the
 * processor and on the place in the array. */
#pragma once

#include "pscompy/core/api.h"

/* Combine n elements: inout[i] = in[i] op inout[i], where `in` is the operand
 * of the lower ranks. The arrays do not overlap, and are aligned as C requires
 * for the type, complex numbers as their parts. */
typedef void (*psc_reduce_t)(const void *in, void *inout, uint64_t n);

/* Returns NULL if there is no such operation or type, or if the operation has
 * no meaning for the type: MIN and MAX of complex numbers, BAND, BOR and BXOR
 * of floats and complex numbers. */
psc_reduce_t psc_reduction(psc_op_t op, psc_type_t type);
/* Returns the number of bytes of an element. */
size_t psc_type_size(psc_type_t type);
/* Returns true if the reduction takes about four times as long for each byte as
 * others do, so that a pass of progress should do less of it. */
bool psc_reduction_slow(psc_op_t op, psc_type_t type);

/* Reductions by name; and allreduce() of Python's numbers: each rank gets the
 * numbers of all, and combines them itself. What is not simple, such as numbers
 * of several kinds, is left to world/reductions.py, which has the same format.
 */
#include "connection.h"

bool psb_op_named(PyObject *name, psc_op_t *op_p)
{
    static const char *const names[] = {
        [PSC_OP_SUM] = "sum",   [PSC_OP_PROD] = "prod", [PSC_OP_MIN] = "min",
        [PSC_OP_MAX] = "max",   [PSC_OP_LAND] = "land", [PSC_OP_LOR] = "lor",
        [PSC_OP_LXOR] = "lxor", [PSC_OP_BAND] = "band", [PSC_OP_BOR] = "bor",
        [PSC_OP_BXOR] = "bxor"};

    for (size_t i = 0;
         PyUnicode_Check(name) && i < sizeof names / sizeof *names; i++) {
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0) {
            *op_p = (psc_op_t)i;
            return true;
        }
    }
    return false;
}

/* ---- numbers ---- */

/* the first kinds of numbers; the same in world/reductions.py */
enum { NUMBER_INT, NUMBER_FLOAT };

bool psb_number_pack(psb_number_t *packed, PyObject *number)
{
    int overflow = 0;

    *packed = (psb_number_t){.kind = NUMBER_FLOAT};
    if (PyFloat_Check(number)) {
        packed->value.f = PyFloat_AS_DOUBLE(number);
        return true;
    }
    if (!PyLong_CheckExact(number))
        return false;
    packed->kind = NUMBER_INT;
    packed->value.i = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow == 0;
}

/* min and max keep a NaN, and the first of equal numbers. */
static double float_least(double a, double b)
{
    return a != a || (b == b && a <= b) ? a : b;
}

static double float_greatest(double a, double b)
{
    return a != a || (b == b && a >= b) ? a : b;
}

/* a = a (op) b. Returns false if this is not done here. */
static bool float_combine(double *a, double b, psc_op_t op)
{
    switch (op) {
    case PSC_OP_SUM:
        *a += b;
        return true;
    case PSC_OP_PROD:
        *a *= b;
        return true;
    case PSC_OP_MIN:
        *a = float_least(*a, b);
        return true;
    case PSC_OP_MAX:
        *a = float_greatest(*a, b);
        return true;
    default:
        return false;
    }
}

/* The same for integers; also false if the result is too long. */
static bool int_combine(int64_t *a, int64_t b, psc_op_t op)
{
    switch (op) {
    case PSC_OP_SUM:
        return !__builtin_add_overflow(*a, b, a);
    case PSC_OP_PROD:
        return !__builtin_mul_overflow(*a, b, a);
    case PSC_OP_MIN:
        *a = b < *a ? b : *a;
        return true;
    case PSC_OP_MAX:
        *a = b > *a ? b : *a;
        return true;
    default:
        return false;
    }
}

PyObject *psb_numbers_combine(const psb_number_t *numbers, Py_ssize_t n,
                              psc_op_t op)
{
    psb_number_t sum = numbers[0];

    for (Py_ssize_t i = 1; i < n; i++) {
        const psb_number_t *next = &numbers[i];

        if (next->kind != sum.kind ||
            !(sum.kind == NUMBER_FLOAT
                  ? float_combine(&sum.value.f, next->value.f, op)
                  : int_combine(&sum.value.i, next->value.i, op)))
            return NULL;
    }
    if (sum.kind == NUMBER_FLOAT)
        return PyFloat_FromDouble(sum.value.f);
    return sum.kind == NUMBER_INT ? PyLong_FromLongLong(sum.value.i) : NULL;
}

/* Converts the shape and strides of the buffer protocol to a psc_layout_t,
 * which has as few dimensions and as long contiguous runs as possible. */
#include "buffers.h"

/* Fills in the layout of a view. Dimensions of one element are left out;
 * dimensions that together have one stride are joined into one. `end` is the
 * end of the memory for the dimensions. */
static void layout_fill(psc_layout_t *layout, psc_dim_t *end,
                        const Py_buffer *view)
{
    psc_dim_t *first = end;

    *layout = (psc_layout_t){.base = view->buf, .run = (size_t)view->itemsize};
    for (int i = view->ndim; i-- > 0;) {
        psc_dim_t dim = {(uint64_t)view->shape[i], view->strides[i]};

        if (dim.n == 1)
            continue;
        if (first == end && dim.stride == (int64_t)layout->run)
            layout->run *= dim.n;
        else if (first != end &&
                 dim.stride == (int64_t)first->n * first->stride)
            first->n *= dim.n;
        else
            *--first = dim;
    }
    layout->dims = first;
    layout->n_dims = (size_t)(end - first);
}

static uint64_t layout_step(const psc_dim_t *dim)
{
    return (uint64_t)(dim->stride < 0 ? -dim->stride : dim->stride);
}

/* Among the dimensions whose bit in `taken` is not set, returns the one with
 * the shortest stride. */
static size_t layout_shortest(const psc_layout_t *layout, uint64_t taken)
{
    size_t found = layout->n_dims;

    for (size_t i = 0; i < layout->n_dims; i++) {
        if (!(taken >> i & 1) &&
            (found == layout->n_dims ||
             layout_step(&layout->dims[i]) < layout_step(&layout->dims[found])))
            found = i;
    }
    return found;
}

/* Returns true if elements may share memory. Elements share no memory if each
 * stride is at least as long as the memory that all shorter strides span
 * together. This holds for every slice of an ordinary array. */
static bool layout_overlaps(const psc_layout_t *layout)
{
    uint64_t reach = layout->run, taken = 0;

    for (size_t i = 0; i < layout->n_dims; i++) {
        size_t next = layout_shortest(layout, taken);
        uint64_t step = layout_step(&layout->dims[next]);

        if (step < reach)
            return true;
        reach += step * (layout->dims[next].n - 1);
        taken |= 1ull << next;
    }
    return false;
}

_Static_assert(PyBUF_MAX_NDIM <= 64, "a dimension is a bit of `taken`");

psc_layout_t *psb_layout_new(const Py_buffer *view, bool writable)
{
    psc_layout_t *layout = PyMem_Malloc(
        sizeof *layout + (size_t)view->ndim * sizeof *layout->dims);

    if (!layout) {
        PyErr_NoMemory();
        return NULL;
    }
    layout_fill(layout, (psc_dim_t *)(void *)&layout[1] + view->ndim, view);
    if (!writable || !layout_overlaps(layout))
        return layout;
    PyMem_Free(layout);
    PyErr_Format(PyExc_BufferError,
                 "cannot receive into this %.100s, whose elements share "
                 "memory: receive into a copy",
                 Py_TYPE(view->obj)->tp_name);
    return NULL;
}

/* What the files of property values share. property_values.c says how a case is checked. */
#ifndef DV_CHECK_VALUES_H
#define DV_CHECK_VALUES_H

#include "check.h"

enum { MAX_REFERENCES = 3, MAX_CANDIDATES = 64, MAX_OUTPUTS = CHECK_MAX_RESULTS + CHECK_MAX_TENSORS };

/* ---- Calls, and copies of their outputs (values_outputs.c) ---- */

/* Copies of results and written arguments after a call, elements in row-major order. */
typedef struct value_output {
    char name[120];
    size_t slot;
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[DV_MAX_NDIM], n;
    size_t at;
} value_output;
typedef struct value_outputs {
    size_t n;
    value_output t[MAX_OUTPUTS];
    unsigned char *data;
    size_t size, room;
} value_outputs;
/* Calls a kernel with a case and copies results and written arguments to `outputs`. contents_from: the case whose elements the
 * tensors have. perturbation: relative change of each real element; 0: none. Returns false if the call failed or memory is out;
 * *call has the status. */
bool check_values_try_call_with_contents(const check_job *job, const check_kernel *kernel, const check_case *c,
    const check_case *contents_from, enum check_guard_side guard_side, double perturbation, value_outputs *outputs,
    check_guarded_call *call);
/* Calls a kernel with a case and copies results and written arguments to `outputs`. Returns false if the call failed or memory is
 * out; *call has the status. */
bool check_values_try_call_kernel(
    const check_job *job, const check_kernel *kernel, const check_case *c, value_outputs *outputs, check_guarded_call *call);
/* Returns the address of the copied elements of output number t. */
const unsigned char *check_values_get_bytes(const value_outputs *outputs, size_t t);
/* True if two outputs have the same shape and dtype; their elements are not compared. */
bool check_values_has_same_shape_and_dtype(const value_output *a, const value_output *b);

/* ---- Comparing (values_compare.c) ---- */

typedef struct comparison {
    check_job *job;
    const check_case *c;
    const value_outputs *found, *references[MAX_REFERENCES];
    /* outputs of the first reference for perturbed and for unperturbed arguments. If arguments have 16 bits, both are computed in
     * f32. perturbed_reference is NULL until a difference is found */
    const value_outputs *perturbed_reference, *unperturbed_reference;
    const check_kernel *reference_kernels[MAX_REFERENCES];
    size_t n;
    const check_case *reference_case; /* the case with which the references were called: c, or c with contiguous tensors */
    /* has_overflow: some input element is so large that its square overflows. can_have_overflow: some 16-bit input may have such
     * an element */
    bool can_have_overflow, has_overflow;
    /* true if an input is filled with CHECK_FILL_BINADES: its sums depend on the order of additions, so integer outputs, such as
     * an argmax, are not compared */
    bool has_binades;
    bool has_negative_infinity; /* true if all elements of some input are -infinity */
    /* true if exactly one input element is NaN or an infinity. The order of products then decides whether a result is NaN or
     * infinity, so both are accepted */
    bool has_lone_special;
    /* true if the decomposition only moves elements and changes their signs; then signs of zeros are compared, too */
    bool only_moves_elements;
    /* true if some input element is a NaN whose only set fraction bit is the lowest. Then only an infinity in place of an
     * expected NaN is reported */
    bool has_low_payload_nan;
} comparison;
/* A difference between a kernel's output and a reference: its kind, such as "no NaN", and the message for the user. */
typedef struct value_difference {
    const char *kind;
    char message[700];
} value_difference;
/* Returns a comparison for the outputs `found` of a case, as yet without references. Sets the flags that follow from the fills of
 * the case's tensors. */
comparison check_values_make_comparison(check_job *job, const check_case *c, const value_outputs *found);
/* True if some output differs from the references by more than the tolerance; *difference receives the first. Nothing is compared
 * if the references differ in number, shapes or dtypes of their outputs. */
bool check_values_outputs_differ(const comparison *m, value_difference *difference);

/* ---- References (values_reference.c) ---- */

/* Names of what a kernel is compared with; check_guarded_call.kernel takes the last two. */
extern const check_kernel check_contiguous_kernel, check_decomposition_kernel, check_decomposition_f64_kernel;
/* True if the operator has a reference kernel that this processor can run. */
bool check_values_has_reference_kernel(const check_op *op);
/* True if the operator has a decomposition. */
bool check_values_has_decomposition(const check_op *op);
/* True if some result is a view of an argument that the operator does not write. Such a view of the contract is compared with
 * what the decomposition in f64 computes. */
bool check_values_has_view_result(const check_op *op);
/* Lists what the outputs of `kernel` are compared with, best first: other reference kernels and the decomposition; without these,
 * all other kernels, unless `kernel` is the reference. Returns the number. Of several kernels in the list only the first that
 * accepts the case is used. */
size_t check_values_list_references(const check_op *op, const check_kernel *kernel, const check_kernel **references);
/* Returns a copy of a case with contiguous tensors, in static memory that the next call overwrites. */
const check_case *check_values_get_contiguous_copy(const check_case *c);
/* Calls the references of job->kernel with a case, copies their outputs to reference_outputs, and enters those that accept the
 * case in *m. Returns their number. Fails the job if a reference kernel or the decomposition refuses a case that the kernel has
 * computed. */
size_t check_values_call_references(check_job *job, const check_case *c, value_outputs *reference_outputs, comparison *m);
/* True if the outputs differ from the references by more than tolerance and sensitivity to the inputs explain; *difference
 * receives how. Only after a first difference it calls the reference with perturbed arguments, to measure the sensitivity. */
bool check_values_differ_beyond_noise(check_job *job, comparison *m, value_difference *difference);

/* ---- Accuracy (values_accuracy.c) ---- */

/* Fails the job if the errors of a narrow dtype have a bias: a mean away from zero, in units in the last place. Correct rounding
 * has a mean near 0, however inaccurate the kernel is. Large errors come from cancellation and are left to the tolerance. */
void check_values_bias(check_job *job, const comparison *m);
/* Records in the job's result the largest error of each dtype against the decomposition in f64, in units in the last place. Only
 * dtypes narrower than f64 are measured, and elements for which the decomposition in the kernel's dtypes is near: other elements
 * are small differences of large numbers, where no kernel is accurate. Expected zeros, and elements below the declared atol, are
 * left out. */
void check_values_measure_accuracy(const comparison *m);

#endif

// Memory that is taken page by page: tensors that are whole for whoever looks at them, but of which
// a worker holds only the pieces that it writes.
//
// Where a parameter is cut over workers, it and the states of its optimizer keep their whole shape,
// so that the user's code and files see what the plain loop would show them. The pieces of other
// workers need no memory meanwhile: the system gives a page when it is first written.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace epl {

// Zeros that lie in memory as `like` does. Those of at least so many bytes, or else large ones
// (kLeastPagedBytes), take no memory before they are written.
at::Tensor zeros_by_page(const at::Tensor& like);
at::Tensor zeros_by_page(const at::Tensor& like, int64_t least_bytes);

// So many bytes, all zero, in pages of their own, which are taken as they are written.
at::Tensor bytes_by_page(int64_t bytes);

// Gives back the pages that lie wholly in [begin, begin + length) of a dimension of a contiguous
// tensor; what stood there is lost. Gives the number of bytes.
int64_t release_pages(const at::Tensor& whole, int64_t dim, int64_t begin, int64_t length);

// The same of all elements but those in [begin, begin + length), in the order in which a tensor
// without gaps lies in memory.
int64_t release_pages_besides(const at::Tensor& whole, int64_t begin, int64_t length);

}  // namespace epl

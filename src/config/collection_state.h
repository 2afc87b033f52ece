// The collections of this thread as the recording sees them, without LibTorch's headers.
#pragma once

namespace epl {

void clear_collections();

}  // namespace epl

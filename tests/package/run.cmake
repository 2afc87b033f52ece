# Three steps that a user takes: install EPL, build a project against it, run the program.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Anew each time: files left by an earlier version would hide one that is no longer installed.
file(REMOVE_RECURSE ${WORK_DIR}/prefix ${WORK_DIR}/build)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
# The user's project gets the prefix and nothing else of this build.
run(${CMAKE_COMMAND} -S ${USER_PROJECT} -B ${WORK_DIR}/build -G Ninja
  -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix
  -D CMAKE_CXX_COMPILER=${CXX_COMPILER}
  -D CMAKE_CXX_COMPILER_LAUNCHER=${CXX_LAUNCHER}
  -D CMAKE_CXX_FLAGS=${flags})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/user_program)

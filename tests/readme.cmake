# The README shows the quick starts to the letter: cmake -DROOT=... -P readme.cmake
file(READ ${ROOT}/README.md readme)
foreach(example tests/examples/quickstart.c rust/tributary/examples/quickstart.rs
                rust/tributary-py/examples/quickstart.py)
    file(READ ${ROOT}/${example} code)
    string(STRIP "${code}" code)
    string(FIND "${readme}" "${code}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "README.md does not show ${example} as it is: copy it there")
    endif()
endforeach()

"""placeholder"""


def run(d):
    return 0

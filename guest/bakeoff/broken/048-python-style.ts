// error: 2:1
def total(xs: list) -> int:
    return sum(xs)
return total([1, 2])

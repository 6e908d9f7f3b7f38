from call import call

call()

"""How a picture becomes an image of a data set: of NumPy and Pillow alone, because a copy is in
every exported model.
"""

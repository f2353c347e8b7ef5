"""What runs a model outside torch: CTranslate2 and onnxruntime, behind the interface of every model."""

"""The titles and sentences of a walk (`regard.exploring.sentences`) in German and Chinese."""

from __future__ import annotations

TITLES = {
    "de": {
        "embedding": "Einbettung",
        "position": "Position",
        "input": "Eingang von Schicht {layer}",
        "norm": "Normieren",
        "add": "Addieren",
        "qkv": "Anfrage, Schlüssel, Wert",
        "source": "Anfrage; Schlüssel und Werte der Quelle",
        "turn": "Drehung nach der Position",
        "scores": "Punkte",
        "scale": "Geteilt durch √{d_k}",
        "bias": "Abstand",
        "mask": "Maske",
        "softmax": "Softmax",
        "sum": "Gewichtete Summe",
        "join": "Köpfe verbinden",
        "feedforward": "Feed-forward",
        "logits": "Nächstes Token",
    },
    "zh": {
        "embedding": "嵌入",
        "position": "位置",
        "input": "进入第 {layer} 层",
        "norm": "归一化",
        "add": "相加",
        "qkv": "查询、键、值",
        "source": "查询；原文的键和值",
        "turn": "按位置旋转",
        "scores": "打分",
        "scale": "除以 √{d_k}",
        "bias": "距离",
        "mask": "掩码",
        "softmax": "Softmax",
        "sum": "加权求和",
        "join": "合并各头",
        "feedforward": "前馈",
        "logits": "下一个词元",
    },
}

SENTENCES = {
    "de": {
        "embedding": "Jedes Token wird in der Einbettungsmatrix nachgeschlagen: eine Zeile aus {size} gelernten "
        "Zahlen.",
        "embedding.scaled": "Sie wird mit √{size} multipliziert.",
        "position": "Dazu kommt ein Vektor, der sagt, wo das Token steht. Ohne ihn könnten die Schichten die "
        "Reihenfolge der Tokens nicht erkennen.",
        "position.learned": "Jede Position hat einen gelernten.",
        "position.waves": "Er besteht aus Wellen, Sinus an geraden und Kosinus an ungeraden Stellen.",
        "norm": "Jeder Vektor wird auf Mittel 0 und Varianz 1 gebracht und dann mit gelernten Zahlen gestreckt "
        "und verschoben.",
        "input": "So hat Schicht {below} die Vektoren hinterlassen: Sie sprechen nun von Tokens in ihrer Umgebung.",
        "add": "Was herauskam, wird zu dem addiert, was hineinging: Das Token bleibt, was es war, und gewinnt, "
        "was es fand.",
        "qkv": "Drei Matrizen machen aus jedem Vektor eine Anfrage (was er sucht), einen Schlüssel (woran er zu "
        "finden ist) und einen Wert (was er gibt). Hier sind die von Kopf {head}.",
        "qkv.first": "„{word}“ wird als Erstes gelesen: Noch ist nichts behalten, die eigenen werden berechnet.",
        "qkv.kept": "Wird „{word}“ gelesen, sind Schlüssel und Werte aller Tokens davor ({count}) behalten; nur die "
        "eigenen werden berechnet.",
        "source": "Jedes Token, das geschrieben wird, stellt eine Anfrage; Schlüssel und Werte sind die der "
        "Quelle, einmal gemacht aus dem, was der Encoder las. Hier sind die von Kopf {head}.",
        "turn": "Zahlenpaare in jeder Anfrage und jedem Schlüssel werden um einen Winkel gedreht, der mit der "
        "Position wächst: Im Produkt bleibt der Abstand der beiden.",
        "scores": "Jede Anfrage trifft jeden Schlüssel: Je ähnlicher die beiden, desto größer ihr Produkt.",
        "scale": "Punkte sind eine Summe aus {d_k} Produkten: Ihre Varianz wächst mit {d_k}, ihre übliche Größe also "
        "mit √{d_k}. Geteilt durch √{d_k} = {root} behalten sie eine Größe, bei der der Softmax noch lernt.",
        "bias": "Was der Abstand zweier Tokens wert ist, kommt zu ihren Punkten hinzu.",
        "mask": "Was nicht gesehen werden darf, wird ausgeblendet: spätere Tokens und, wenn es ein Fenster gibt, "
        "die außerhalb. Aus −∞ Punkten wird das Gewicht 0.",
        "mask.none": "Hier ist nichts verborgen: Jedes Token darf auf den ganzen Text schauen.",
        "softmax": "Aus jeder Zeile werden Anteile, die zusammen 1 ergeben. „{word}“ schaut am meisten auf "
        "„{other}“: {share}.",
        "sum": "Die Werte werden addiert, jeder so viel, wie sein Gewicht sagt: was „{word}“ von denen sammelt, "
        "auf die es schaut.",
        "join": "Was alle Köpfe gesammelt haben, zusammen {heads}, wird nebeneinandergelegt und geht durch eine "
        "weitere Matrix zurück auf die Größe des Modells.",
        "feedforward": "Jedes Token geht für sich durch zwei Matrizen, dazwischen {activation}: hinaus zu {size} "
        "Zahlen und wieder zurück.",
        "feedforward.gated": "Jedes Token geht für sich durch drei Matrizen: Zwei führen hinaus zu je {size} Zahlen, "
        "und das eine Ergebnis sagt nach silu, wie viel vom anderen durchkommt; die dritte führt zurück "
        "({activation}).",
        "feedforward.zeros": "Bei „{word}“ sind {share} davon nicht null.",
        "logits": "Nach Schicht {layers}, der letzten, wird der Vektor von „{word}“ mit dem Ausgangsvektor jedes "
        "Tokens verglichen. Der Softmax macht aus den {vocabulary} Punkten Wahrscheinlichkeiten; hier "
        "stehen die {count} größten.",
    },
    "zh": {
        "embedding": "每个词元在嵌入矩阵中查得一行学到的数，共 {size} 个。",
        "embedding.scaled": "这一行再乘以 √{size}。",
        "position": "再加上一个说明词元所在位置的向量。没有它，各层分不出词元的先后。",
        "position.learned": "每个位置各有一个学到的。",
        "position.waves": "它由波组成，偶数处为正弦，奇数处为余弦。",
        "norm": "每个向量先化为均值 0、方差 1，再用学到的数缩放和平移。",
        "input": "这是第 {below} 层留下的向量：它们说的已是处在上下文中的词元。",
        "add": "把出来的加到进去的上面：词元仍是原来的词元，又得到了它找到的东西。",
        "qkv": "三个矩阵把每个向量变成查询（它找什么）、键（凭什么被找到）和值（它给出什么）。这里是头 {head} 的。",
        "qkv.first": "最先读到的是“{word}”：还没有保留什么，只计算它自己的。",
        "qkv.kept": "读到“{word}”时，它前面所有词元（{count} 个）的键和值都已保留，只计算它自己的。",
        "source": "正在写的每个词元发出查询；键和值来自原文，由编码器读到的内容一次算出。这里是头 {head} 的。",
        "turn": "每个查询和键里的数两两成对，转过一个随位置增大的角：乘积里留下的是两者的距离。",
        "scores": "每个查询遇上每个键：两者越像，乘积越大。",
        "scale": "得分是 {d_k} 个乘积之和：方差随 {d_k} 增长，通常的大小因而随 √{d_k} 增长；"
        "除以 √{d_k} = {root}，大小才适合 softmax 学习。",
        "bias": "把两个词元的距离所值的分加到它们的得分上。",
        "mask": "不许看的被遮住：后面的词元，以及有窗口时窗口之外的词元。得分 −∞ 变成权重 0。",
        "mask.none": "这里没有遮住什么：每个词元都可以看全文。",
        "softmax": "每一行变成合计为 1 的份额。“{word}”看得最多的是“{other}”：{share}。",
        "sum": "各个值按权重相加：这就是“{word}”从它所看的词元那里收集到的。",
        "join": "所有头（共 {heads} 个）收集到的并排放好，再经过一个矩阵，回到模型的大小。",
        "feedforward": "每个词元各自经过两个矩阵，中间是 {activation}：先展开成 {size} 个数，再收回来。",
        "feedforward.gated": "每个词元各自经过三个矩阵：前两个各展开成 {size} 个数，其中一份经过 silu "
        "后决定另一份通过多少；第三个再收回来（{activation}）。",
        "feedforward.zeros": "对“{word}”，其中 {share} 不为零。",
        "logits": "经过最后的第 {layers} 层之后，把“{word}”的向量与词表中每个词元的输出向量比较。"
        "softmax 把 {vocabulary} 个得分变成概率，这里是最大的 {count} 个。",
    },
}
